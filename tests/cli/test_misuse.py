"""Mistakes of users, as a table: the command line, the exit code, and what the message must contain.

Each message names the file, object or option, and what to do. No mistake gives a traceback.
"""

import gzip
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.conftest import NOW, group, manifests, node, pod, queue

SCENARIO = """name: s
workloads: [{name: w, generate: {gangs: 3}}]
policies: [{name: fcfs}]
seeds: [0]
"""
TUNE = """tune:
  policy: fcfs
  objective: {minimise: meanWait}
  heldOut: 2
  parameters: {profile.sessionWindow: {low: 100, high: 900, whole: true}}
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team-a}
spec: {parallelism: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}
"""
CLUSTER = manifests(
    node("n1"), node("n2"), group("good", "{minMember: 2}"), pod("good-0", "good"), pod("good-1", "good")
)
FILES: dict[str, str | bytes] = {
    "cluster.yaml": CLUSTER,
    "scenario.yaml": SCENARIO,
    "empty.yaml": "",
    "utf16.yaml": CLUSTER.encode("utf-16"),
    "binary.yaml": b"\x7fELF\x02\x01\x00\x00",
    "latin.yaml": "kind: Node # Größe\n".encode("latin-1"),
    "cut.json": '{"kind": "List",\n "items": [',
    "cut.json.gz": gzip.compress(CLUSTER.encode())[:60],
    "tab.yaml": "kind: Node\nmetadata:\n\tname: n1\n",
    "bomb.yaml": "a: &a [x, x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)),
    "twice.yaml": node("n3").replace("kind: Node", "kind: Node\nkind: Node"),
    "members.yaml": group("bad", "{minMembers: 2}"),
    "request.yaml": pod("bad").replace("requests:", "request:"),
    "kind.yaml": group("bad").replace("kind: PodGroup", "kind: PodGroups"),
    "guarantee.yaml": queue("bad", "{guarante: {cpu: 1}}"),
    "word.yaml": group("bad", "{minMember: one}"),
    "negative.yaml": group("bad", "{minMember: -1}"),
    "huge.yaml": pod("bad", cpu="99999999999999999999999"),
    "unit.yaml": pod("bad", cpu="1cpu"),
    "limit.yaml": queue("bad", "{limit: {cpu: -4}}"),
    "cycle.yaml": manifests(queue("a", "{parent: b}"), queue("b", "{parent: a}")),
    "config-kind.yaml": manifests("kind: BatchSchedulerConfiguration", "kind: BatchSchedulerConfiguration"),
    "config-field.yaml": "profiles: [{solvr: {}}]",
    "config-plugin.yaml": "profiles: [{plugins: {score: {enabled: [{name: NodeAffinty}]}}}]",
    "kubeconfig": "apiVersion: v1\nkind: Config\n",
    "field.yaml": SCENARIO + "gang: 3\n",
    "trace.yaml": SCENARIO.replace("generate: {gangs: 3}", "swf: {trace: absent.swf}"),
    "empty.swf": "; no job\n",
    "cut.swf.gz": gzip.compress(b"; MaxProcs: 4\n1 0 -1 10 2\n" * 9)[:30],
    "jobs.swf": "; MaxProcs: 4\n1 0 -1 10 2\n2 5 -1 10 2\n",
    "wide.swf": "; MaxProcs: 1\n1 0 -1 10 2\n",
    "columns.csv": "timestamp,duration\n",
    "negative.csv": "timestamp,duration,num_gpus,cluster\n2017-10-01 00:00:00,-5,2,abc\n",
    "word.csv": "timestamp,duration,num_gpus,cluster\nyesterday,5,2,abc\n",
    "cut.csv.gz": gzip.compress(b"timestamp,duration,num_gpus,cluster\n" * 9)[:30],
    "cut-trace.yaml": SCENARIO.replace("generate: {gangs: 3}", "swf: {trace: cut.swf.gz}"),
    "start.yaml": SCENARIO.replace("generate: {gangs: 3}", "swf: {trace: jobs.swf, start: 9}"),
    "policy.yaml": SCENARIO.replace("{name: fcfs}", "{name: x, profile: {policy: {name: fcfss}}}"),
    "changed-queue.yaml": SCENARIO.replace("{name: fcfs}", "{name: x, queues: {tem-1: {weight: 2}}}"),
    "no-seed.yaml": SCENARIO + TUNE.replace("heldOut: 2", "heldOut: 0"),
    "tuned-policy.yaml": SCENARIO + TUNE.replace("policy: fcfs", "policy: fcfss"),
    "tuned-path.yaml": SCENARIO + TUNE.replace("sessionWindow", "sesionWindow"),
    "infinite.yaml": SCENARIO.replace("gangs: 3", "gangs: 3, load: .inf"),
    "parallelism.yaml": JOB.replace("parallelism: 2", "parallelism: -2"),
    "text-parallelism.yaml": JOB.replace("parallelism: 2", "parallelism: two"),
    "job.yaml": JOB,
    "node.yaml": node("n4"),
    "token": " \n",
    "directory/plan.json": "{",
    "unplanned/plan.json": '{"scenario": {"name": "s"}, "runs": [{"x": 1}]}',
    "broken/plan.json": """{"scenario": {"name": "s"},
        "runs": [{"workload": "w", "policy": "p", "seed": 0, "key": "k"}]}""",
    "broken/runs/k.parquet": "PAR1 or not",
    "without-manifests/notes.txt": "nothing",
}


@dataclass(frozen=True)
class Misuse:
    """A wrong command line, its exit code, and the parts of the message."""

    line: str
    code: int
    parts: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        return self.line.split()


MISUSES = [
    # The command line
    Misuse(
        "decide cluster.yaml request.yaml",
        0,
        ("request.yaml: Pod team-a/bad: spec.containers[0].resources.request:", "did you mean requests?"),
    ),
    Misuse("decied cluster.yaml", 2, ("'decied'", "Did you mean 'decide'?")),
    Misuse("lab rnu scenario.yaml", 2, ("'rnu'", "Did you mean 'run'?", "batchsched lab --help")),
    Misuse("decide --sed 4 cluster.yaml", 2, ("there is no option --sed; did you mean --seed?",)),
    Misuse("decide", 2, ("missing argument 'FILE...'", "batchsched decide --help")),
    Misuse("decide cluster.yaml --seed -1", 2, ("--seed: expected 0 or more",)),
    Misuse("decide cluster.yaml --seed many", 2, ("--seed: expected a whole number",)),
    Misuse(
        "decide cluster.yaml --now yesterday", 2, ("--now: 'yesterday' is not a time; expected RFC 3339",)
    ),
    Misuse(
        "decide cluster.yaml -o toml",
        2,
        ("--output", "'toml'", "expected table, json, yaml, wide, name or jsonpath"),
    ),
    Misuse("decide cluster.yaml -o jsonpath={.a[}", 2, ("--output: jsonpath: cannot read",)),
    Misuse(
        "--color red decide cluster.yaml", 2, ("--color: expected one of auto, always, never; found 'red'",)
    ),
    Misuse("decide cluster.yaml --profile batchshed", 2, ("--profile", "did you mean batchsched?")),
    Misuse(
        "decide cluster.yaml --record nowhere/s.json.gz",
        2,
        ("--record: there is no directory 'nowhere'; create it",),
    ),
    Misuse(
        "simulate generate --gangs 5 --policy fcfss",
        2,
        ("--policy: there is no policy 'fcfss'; did you mean fcfs?",),
    ),
    Misuse(
        "simulate generate --gangs 5 --policy headroom:shar=1",
        2,
        ("--policy", "args.shar: unknown field", "share"),
    ),
    Misuse("simulate generate --gangs 5 --policy headroom:share=5", 2, ("--policy", "args.share: expected")),
    Misuse(
        "simulate generate --gangs 5 --report nowhere/r.html",
        2,
        ("--report: there is no directory 'nowhere'",),
    ),
    Misuse("simulate swf absent.swf", 2, ("FILE: there is no file 'absent.swf'",)),
    Misuse("explain podgroup/good cluster.yaml --context prod", 2, ("--context: has no effect on files",)),
    Misuse(
        "explain podgroup/goood cluster.yaml -n team-a",
        2,
        ("'team-a/goood'", "did you mean podgroup/team-a/good?"),
    ),
    Misuse("explain queue/default cluster.yaml", 2, ("for a queue: batchsched queues explain default",)),
    Misuse(
        "queues explain defaultt cluster.yaml", 2, ("there is no Queue 'defaultt'; did you mean default?",)
    ),
    Misuse(
        "queues cluster.yaml -r nvidia.com/gpu", 2, ("no node has 'nvidia.com/gpu'; expected one of cpu",)
    ),
    Misuse("get pods", 2, ("there is no kind 'pods'; expected podgroups (pg) or queues (bq)",)),
    Misuse("lab compare nowhere :fcfs", 2, ("A: there is no folder 'nowhere'",)),
    Misuse("lab serve nowhere", 2, ("FOLDER: there is no directory 'nowhere'",)),
    Misuse(
        "run --lease a/b/c", 2, ("--lease: 'a/b/c' is not the name of a Lease; expected NAME or NS/NAME",)
    ),
    # Files that cannot be read
    Misuse("decide nosuch.yaml", 2, ("FILE...: there is no file 'nosuch.yaml'",)),
    Misuse("decide clutser.yaml", 2, ("there is no file 'clutser.yaml'; did you mean 'cluster.yaml'?",)),
    Misuse("decide empty.yaml", 1, ("empty.yaml", "expected a Kubernetes object")),
    Misuse("decide binary.yaml", 1, ("binary.yaml: is binary data; expected YAML or JSON",)),
    Misuse("decide utf16.yaml", 1, ("utf16.yaml: is UTF-16 text", "save it as UTF-8")),
    Misuse("decide latin.yaml", 1, ("latin.yaml", "is not UTF-8 text")),
    Misuse("decide cut.json", 1, ("cut.json: line 2", "is not JSON")),
    Misuse("decide cut.json.gz", 1, ("cut.json.gz",)),
    Misuse("decide tab.yaml", 1, ("tab.yaml: line 3: is not YAML",)),
    Misuse("decide bomb.yaml", 1, ("bomb.yaml",)),
    Misuse("replay cluster.yaml", 1, ("cluster.yaml: is not a recorded session", "batchsched record")),
    Misuse("simulate swf empty.swf", 1, ("empty.swf: has no job that ran",)),
    # Objects that are set aside; the rest is decided
    Misuse("decide cluster.yaml cluster.yaml", 3, ("set aside: cluster.yaml: Node n1: metadata.name",)),
    Misuse("decide cluster.yaml twice.yaml", 3, ("set aside: twice.yaml", "kind")),
    Misuse(
        "decide cluster.yaml members.yaml",
        3,
        ("members.yaml: PodGroup team-a/bad: spec.minMembers: unknown field; did you mean minMember?",),
    ),
    Misuse("decide cluster.yaml kind.yaml", 3, ("kind.yaml", "PodGroups", "did you mean PodGroup?")),
    Misuse(
        "decide cluster.yaml guarantee.yaml",
        3,
        ("Queue bad: spec.guarante: unknown field; did you mean guarantee?",),
    ),
    Misuse(
        "decide cluster.yaml word.yaml", 3, ("PodGroup team-a/bad: spec.minMember: expected a whole number",)
    ),
    Misuse(
        "decide cluster.yaml negative.yaml",
        3,
        ("PodGroup team-a/bad: spec.minMember: expected 1 or more, found -1",),
    ),
    Misuse(
        "decide cluster.yaml huge.yaml", 3, ("Pod team-a/bad: spec.containers[0].resources.requests.cpu",)
    ),
    Misuse(
        "decide cluster.yaml unit.yaml",
        3,
        ("Pod team-a/bad: spec.containers[0].resources.requests.cpu: '1cpu'",),
    ),
    Misuse("decide cluster.yaml limit.yaml", 3, ("Queue bad: spec.limit.cpu",)),
    Misuse("decide cluster.yaml cycle.yaml", 3, ("Queue a", "a → b → a")),
    # Configurations and scenarios
    Misuse("decide cluster.yaml --config absent.yaml", 2, ("--config: there is no file 'absent.yaml'",)),
    Misuse(
        "decide cluster.yaml --config config-kind.yaml",
        1,
        ("config-kind.yaml: contains several documents; expected one BatchSchedulerConfiguration",),
    ),
    Misuse(
        "decide cluster.yaml --config cluster.yaml",
        1,
        ("cluster.yaml: contains several documents; expected one BatchSchedulerConfiguration",),
    ),
    Misuse(
        "decide cluster.yaml --config config-field.yaml",
        1,
        ("config-field.yaml: profiles[0].solvr: unknown field; did you mean solver?",),
    ),
    Misuse(
        "decide cluster.yaml --config config-plugin.yaml",
        1,
        (
            "config-plugin.yaml: profiles[0].plugins.score.enabled[0].name",
            "there is no plugin 'NodeAffinty'; did you mean NodeAffinity?",
        ),
    ),
    Misuse("lab run field.yaml", 1, ("field.yaml: gang: unknown field",)),
    Misuse("lab run scenario.yaml --set sedes=1", 1, ("sedes: unknown field; did you mean seeds?",)),
    Misuse(
        "lab run scenario.yaml --set sedes",
        2,
        ("--set: 'sedes' is not a change of the scenario; expected PATH=VALUE",),
    ),
    Misuse(
        "lab run trace.yaml",
        1,
        (
            "trace.yaml: workload w: swf.trace: there is no file",
            "absent.swf",
            "--set workloads.w.swf.trace=FILE",
        ),
    ),
    Misuse(
        "lab run scenario.yaml --set seeds=[",
        2,
        ("--set seeds: '[' is not a value in YAML; expected such as 3",),
    ),
    Misuse("lab run scenario.yaml --set =3", 2, ("--set: '=3' is not a change",)),
    Misuse(
        "lab run scenario.yaml --set workloads.v.generate.gangs=3",
        1,
        ("scenario.yaml: --set: workloads.v.generate.gangs: there is no part 'v'; known are w",),
    ),
    Misuse(
        "lab run scenario.yaml --set name.x=3", 1, ("--set: name.x: expected the path of a field, but 's'",)
    ),
    Misuse(
        "lab run empty.yaml", 1, ("empty.yaml: is empty; expected a mapping with workloads and policies",)
    ),
    Misuse("lab run job.yaml", 1, ("job.yaml: kind: expected Scenario, found 'Job'",)),
    Misuse("lab run binary.yaml", 1, ("binary.yaml: is not text", "expected YAML or JSON")),
    Misuse("lab run utf16.yaml", 1, ("utf16.yaml: is not text in UTF-8",)),
    Misuse("lab run directory", 2, ("SCENARIO: 'directory' is a directory; expected a file",)),
    Misuse("lab run policy.yaml", 1, ("policy.yaml: policy x: profile.policy.name", "did you mean fcfs?")),
    Misuse(
        "lab run changed-queue.yaml --processes 1",
        1,
        ("changed-queue.yaml: policy x: there is no queue 'tem-1'; did you mean team-1?",),
    ),
    Misuse("lab run infinite.yaml", 1, ("infinite.yaml: workloads[0].generate.load",)),
    Misuse("lab run cut-trace.yaml --processes 1", 1, ("cut.swf.gz: is a broken gzip file", "copy it again")),
    Misuse(
        "lab run start.yaml --processes 1",
        1,
        ("start.yaml: workload w: start: no job is left from row 9 on, of 2; expected 0 to 1",),
    ),
    Misuse("lab tune scenario.yaml", 1, ("scenario.yaml: scenario s: tune: is required; state the policy",)),
    Misuse("lab tune no-seed.yaml", 1, ("no-seed.yaml: tune.heldOut: expected 1 or more seeds, found 0",)),
    Misuse(
        "lab tune tuned-policy.yaml",
        1,
        ("tuned-policy.yaml: tune.policy: there is no policy 'fcfss'; did you mean fcfs?",),
    ),
    Misuse(
        "lab tune tuned-path.yaml",
        1,
        ("tuned-path.yaml", "tune.parameters.profile.sesionWindow", "did you mean sessionWindow?"),
    ),
    Misuse("lab compare directory directory", 1, ("plan.json: is no plan of the lab", "run `lab run` again")),
    Misuse("lab compare unplanned unplanned", 1, ("plan.json: is no plan of the lab",)),
    Misuse("lab serve broken --port 0", 1, ("k.parquet: is no result of the lab", "delete the file")),
    Misuse("lab serve broken --token-file absent", 2, ("--token-file: there is no file 'absent'",)),
    Misuse("lab serve broken --token-file directory", 2, ("--token-file: 'directory' is a directory",)),
    Misuse("lab serve broken --token-file token", 1, ("token holds no token; expected one line of text",)),
    Misuse("lab serve broken --tls-cert-file absent", 2, ("--tls-cert-file: there is no file 'absent'",)),
    # Traces
    Misuse("simulate swf cut.swf.gz", 1, ("cut.swf.gz: is a broken gzip file", "copy it again")),
    Misuse("simulate swf binary.yaml", 1, ("binary.yaml:1: expected numbers only",)),
    Misuse("simulate swf wide.swf --processes 1", 1, ("row 1: asks for 2 processors", "set processors to 2")),
    Misuse("simulate swf jobs.swf --starts -1", 2, ("--starts: there is no row -1; rows count from 0",)),
    Misuse("simulate swf jobs.swf --jobs 9 --windows 2", 1, ("jobs: the trace is shorter than one window",)),
    Misuse("simulate swf jobs.swf --policy headroom:share=[", 2, ("--policy: '[' is not a value in YAML",)),
    Misuse("simulate swf jobs.swf --policy headroom:share", 2, ("--policy: 'share' is not an argument",)),
    Misuse(
        "simulate philly columns.csv", 1, ("columns.csv: has no column num_gpus, cluster; expected a CSV",)
    ),
    Misuse(
        "simulate philly negative.csv",
        1,
        ("negative.csv:2: duration: cannot be read: expected a number", "'-5'"),
    ),
    Misuse("simulate philly word.csv", 1, ("word.csv:2: timestamp: cannot be read: expected a time",)),
    Misuse("simulate philly cut.csv.gz", 1, ("cut.csv.gz: is a broken gzip file",)),
    Misuse("simulate philly word.csv --first never", 2, ("--first: 'never' is not a time",)),
    Misuse("simulate generate --load inf", 2, ("--load: expected 1000 or less",)),
    Misuse("simulate generate --load nan", 2, ("--load: expected",)),
    Misuse("simulate manifests directory --runtime -1", 2, ("--runtime: expected 0 or more",)),
    Misuse(
        "simulate manifests without-manifests",
        1,
        ("without-manifests: no YAML or JSON file in it",),
    ),
    # Gangs that are added, queues, dumps and the demo
    Misuse(
        "what-if -f parallelism.yaml --cluster cluster.yaml",
        1,
        (
            "parallelism.yaml: Job team-a/train: spec.parallelism: expected a whole number, 0 or more; found '-2'",
        ),
    ),
    Misuse(
        "what-if -f text-parallelism.yaml --cluster cluster.yaml",
        1,
        ("spec.parallelism: expected a whole", "'two'"),
    ),
    Misuse(
        "what-if -f node.yaml --cluster cluster.yaml",
        1,
        ("node.yaml: there is no pod, PodGroup or owner of pods in it",),
    ),
    Misuse(
        "what-if -f empty.yaml --cluster cluster.yaml",
        1,
        ("empty.yaml: there is no pod, PodGroup or owner of pods in it",),
    ),
    Misuse(
        "what-if -f job.yaml --cluster empty.yaml",
        1,
        ("empty.yaml: expected a Kubernetes object", "found none"),
    ),
    Misuse(
        "what-if -f members.yaml --cluster cluster.yaml",
        1,
        (
            "error: members.yaml: PodGroup team-a/bad: spec.minMembers: unknown field; did you mean minMember?",
        ),
    ),
    Misuse("decide cluster.yaml --policy fcfs", 2, ("there is no option --policy",)),
    Misuse(
        "explain cluster.yaml configmap/x",
        2,
        ("there is no file 'configmap/x'; for an object: podgroup/x, pod/x or job/x",),
    ),
    Misuse("queues explan default cluster.yaml", 2, ("there is no file 'explan'; did you mean explain?",)),
    Misuse("queues cut.json.gz", 1, ("cut.json.gz: is a broken gzip file",)),
    Misuse("demo --gangs 0", 2, ("--gangs: expected 1 or more",)),
    Misuse("demo --examples empty.yaml", 1, ("empty.yaml: expected a Kubernetes object", "found none")),
    Misuse("demo --report directory", 2, ("--report: 'directory' is a directory; expected a file",)),
    Misuse("dump --to cluster.yaml", 2, ("--to: 'cluster.yaml' exists, and is neither a dump",)),
    Misuse("dump --kubeconfig directory", 2, ("--kubeconfig: 'directory' is a directory; expected a file",)),
    # The cluster
    Misuse("get pg --kubeconfig absent", 2, ("--kubeconfig: there is no file 'absent'",)),
    Misuse(
        "get pg --kubeconfig kubeconfig",
        1,
        ("no usable Kubernetes configuration", "set KUBECONFIG or --kubeconfig"),
    ),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with the files of all mistakes."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("misuse", MISUSES, ids=lambda misuse: misuse.line)
def test_mistake_has_a_message_with_a_remedy_and_the_exit_code_of_its_kind(misuse, folder, command):
    now = [] if "--now" in misuse.line or misuse.arguments[0] != "decide" else ["--now", NOW]
    result = command(*misuse.arguments, *now)
    assert result.code == misuse.code, result.err
    assert [part for part in misuse.parts if part not in result.err] == [], result.err
    assert "Traceback" not in result.err
    assert "defect" not in result.err
    assert not re.search(r"\b(pydantic|Errno|Input should be|<class)", result.err)


def test_report_over_an_unwritable_file_is_refused_before_the_work(command, folder):
    if os.geteuid() == 0:
        pytest.skip("the superuser may write everywhere")
    (folder / "report.html").touch(0o400)
    result = command("simulate", "generate", "--gangs", "5", "--report", "report.html")
    assert (result.code, "is not writable; choose another path" in result.err) == (2, True)


def test_modified_session_names_its_digest(command, folder):
    assert command("record", "cluster.yaml", "--to", "s.json.gz", "--now", NOW).code == 0
    text = gzip.decompress((folder / "s.json.gz").read_bytes())
    (folder / "s.json.gz").write_bytes(gzip.compress(text.replace(b"good-0", b"good-9")))
    result = command("replay", "s.json.gz")
    assert (result.code, "does not match its digest" in result.err) == (1, True)
