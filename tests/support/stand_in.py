"""A job that stands in for one of spark_jobs/: notes its request, then ends as the plan says.

The file that STAND_IN names holds {"calls": path, "answers": {text: [exit code, result]}}; the
answer is that of the first text that its request has. A result that is a text is an error's: it
goes to standard error, and no result is left.
"""

import json
import os
import sys
from pathlib import Path

plan = json.loads(Path(os.environ["STAND_IN"]).read_text())
request, _, result_path = sys.argv[1:]
with Path(plan["calls"]).open("a") as calls:
    calls.write(request + "\n")
code, result = next(answer for name, answer in plan["answers"].items() if name in request)
if isinstance(result, str):
    sys.stderr.write(f"shardpost: {result}\n")
else:
    Path(result_path).write_text(json.dumps(result))
sys.exit(code)
