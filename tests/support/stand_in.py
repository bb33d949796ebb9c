"""A job that stands in for one of spark_jobs/: notes its request, then ends as the plan says.

The file that STAND_IN names holds {"calls": path, "answers": {text: [exit code, result]}}; the
answer is that of the first text that its request has. A result that is a text is an error's: it
goes to standard error, and no result is left. A code below 0 is the signal that kills it. The file
of STAND_IN_NOTES, if it is set, gets the environment, and the text of the list that the request
names.
"""

import json
import os
import sys
from pathlib import Path

plan = json.loads(Path(os.environ["STAND_IN"]).read_text())
request, _, result_path = sys.argv[1:]
with Path(plan["calls"]).open("a") as calls:
    calls.write(request + "\n")
if notes := os.environ.get("STAND_IN_NOTES"):
    source = json.loads(request)["source"]
    text = Path(source["location"]).read_text() if "location" in source else ""
    Path(notes).write_text(json.dumps([dict(os.environ), text]))
code, result = next(answer for name, answer in plan["answers"].items() if name in request)
if code < 0:
    os.kill(os.getpid(), -code)
if isinstance(result, str):
    sys.stderr.write(f"shardpost: {result}\n")
else:
    Path(result_path).write_text(json.dumps(result))
sys.exit(code)
