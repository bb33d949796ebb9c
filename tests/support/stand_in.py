"""A job that stands in for one of spark_jobs/: notes its arguments, then ends as the plan says.

The file that STAND_IN names holds {"calls": path, "answers": {argument: [exit code, result]}}; the
answer is that of the first argument that it was given. A result that is a text is an error's: it
goes to standard error, and no result is left.
"""

import json
import os
import sys
from pathlib import Path

plan = json.loads(Path(os.environ["STAND_IN"]).read_text())
arguments = sys.argv[1:]
with Path(plan["calls"]).open("a") as calls:
    calls.write(json.dumps(arguments) + "\n")
code, result = next(answer for name, answer in plan["answers"].items() if name in arguments)
if isinstance(result, str):
    sys.stderr.write(f"shardpost: {result}\n")
else:
    Path(arguments[arguments.index("--result") + 1]).write_text(json.dumps(result))
sys.exit(code)
