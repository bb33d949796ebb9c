"""Mails rendered in a child process, with bounds of time, memory and output: for a server.

A template can take any time and any memory, and Airflow's API server has other work. So whatever of
the page renders templates does it by this file, which imports no more in the child than it needs.
"""

import json
import pickle
import resource
import subprocess
import sys
from dataclasses import asdict
from threading import BoundedSemaphore

from shardpost.errors import ShardpostError, one_line
from shardpost.weekly_email import own_templates
from shardpost.weekly_email.model import mail_rendering
from shardpost.weekly_email.model.mail_rendering import Rendered, TemplateError
from shardpost.weekly_email.model.mail_templates import MailTemplates, Values
from shardpost.weekly_email.own_templates import TemplateSettings

# Of processor time, and of the clock's where the processor has other work, too.
CPU_SECONDS = 5
MOST_SECONDS = 60.0
MOST_MEMORY = 256 << 20
# Of the text and of the HTML; a mail of 10,000 positions has 1 MB.
MOST_CHARACTERS = 4 << 20
AT_ONCE = BoundedSemaphore(2)
WAIT_SECONDS = 10.0


def rendered(
    templates: MailTemplates, language: str | None, values: Values, *, is_tried: bool = False
) -> Rendered:
    """Return the parts of one mail, as `mail_rendering.rendered`; TemplateError beyond bounds."""
    return Rendered(**_asked(templates, language, values, is_tried=is_tried))


def templates_of(settings: TemplateSettings) -> MailTemplates:
    """Return the templates that the settings name, tried as `own_templates.templates_of` does."""
    templates = own_templates.read(settings)
    _asked(templates, None, None, is_tried=True)
    return templates


def _asked(*given: object, is_tried: bool) -> dict[str, str]:
    command, asked = [sys.executable, "-P", "-m", __name__], pickle.dumps((given, is_tried))
    if not AT_ONCE.acquire(timeout=WAIT_SECONDS):
        raise ShardpostError("other mails are being rendered: try again in a minute")
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ShardpostError(f"expected a mail within {MOST_SECONDS:g} s, found none") from None
    finally:
        AT_ONCE.release()
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise TemplateError(
            f"expected a mail within {CPU_SECONDS} s of processor time and {MOST_MEMORY >> 20} MB,"
            f" found none: {one_line(said) or f'exit code {done.returncode}'}"
        )
    answer: dict[str, str] = json.loads(done.stdout)
    if "error" in answer:
        raise TemplateError(answer["error"])
    return answer


def _answer() -> dict[str, str]:
    """Return what the parent asks for, in the child; nothing where it only tries templates."""
    (templates, language, values), is_tried = pickle.load(sys.stdin.buffer)  # noqa: S301 - written here
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    try:
        if values is None:
            mail_rendering.check(templates)
            return {}
        found = mail_rendering.rendered(templates, language, values, is_tried=is_tried)
    except ShardpostError as error:
        return {"error": str(error)}
    if (size := len(found.text) + len(found.html)) > MOST_CHARACTERS:
        return {"error": f"expected at most {MOST_CHARACTERS:,} characters, found {size:,}"}
    return asdict(found)


if __name__ == "__main__":
    print(json.dumps(_answer()))  # noqa: T201
