"""Write the jobs of Microsoft's Philly trace as the table that batchsched reads.

python philly_table.py cluster_job_log philly.csv
"""

import csv
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any


def seconds(attempt: dict[str, Any]) -> float:
    """Return the duration of an attempt of a job; 0 if it has no start or no end."""
    start, end = attempt.get("start_time"), attempt.get("end_time")
    if start in (None, "", "None") or end in (None, "", "None"):
        return 0.0
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def main(log: str, table: str) -> None:
    jobs = json.loads(Path(log).read_text("utf-8"))
    with Path(table).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("timestamp", "duration", "num_gpus", "cluster"))
        for job in jobs:
            duration = sum(seconds(attempt) for attempt in job["attempts"])
            if duration > 0:
                gpus = sum(len(machine["gpus"]) for machine in job["attempts"][0]["detail"])
                rows.writerow((job["submitted_time"], duration, gpus, job["vc"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
