"use strict";
const reload = document.getElementById("reload");
reload.checked = sessionStorage.getItem("reload") !== "no";
reload.addEventListener("change", () => sessionStorage.setItem("reload", reload.checked ? "yes" : "no"));
setInterval(() => { if (reload.checked) location.reload(); }, 15000);
