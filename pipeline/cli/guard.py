"""Errors end here: one message on standard error, and the exit code that belongs to it; floor 4.

There is no traceback for what a user can mend. For a defect there is one when ``PIPELINE_DEBUG`` is set.
"""

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from typer import Abort, TyperException

from pipeline.cli.render import safe, say
from pipeline.errors import PipelineError

DATABASE = 3
INTERRUPTED = 130


class Interrupted(PipelineError):
    """interrupted"""

    exit_code = INTERRUPTED


def guarded(command: Callable[[], Any]) -> int:
    """Run the command line; returns its exit code, whatever happens."""
    try:
        code = command()
    except Interrupted as stop:
        say(str(stop))
        return INTERRUPTED
    except KeyboardInterrupt:
        say(str(Interrupted()))
        return INTERRUPTED
    except Abort:
        say("nothing was changed")
        return 1
    except PipelineError as error:
        say(f"error: {error}")
        return error.exit_code
    except TyperException as error:
        return _misused(error)
    except (Exception, SystemExit) as error:
        return _defect(error)
    if code == INTERRUPTED:  # typer's own answer to Ctrl-C
        say(str(Interrupted()))
    return code if isinstance(code, int) else 0


def _misused(error: Any) -> int:
    """Wrong options and arguments, in our form; help, when nothing was asked."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        print(context.get_help(), file=sys.stderr)
        return 2
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    text = text.strip().rstrip(".")
    say(f"error: {text[:1].lower()}{text[1:]}; see: {context.command_path if context else 'pipeline'} --help")
    return int(getattr(error, "exit_code", 2))


def _defect(error: BaseException) -> int:
    if os.environ.get("PIPELINE_DEBUG"):
        say("".join(traceback.format_exception(error)).rstrip())
    if _is_of_the_database(error):
        from pipeline.db import LOCKED, reason, sqlstate

        if sqlstate(error) == LOCKED:
            say("error: somebody else holds what this needs: another command, or an application's open plan; try again")
            return 1
        say(f"error: the database refused: {safe(reason(error))}")
        return DATABASE
    if isinstance(error, OSError) and error.filename:
        say(f"error: {error.strerror}: {safe(error.filename)}")
        return 1
    again = "" if os.environ.get("PIPELINE_DEBUG") else "; run again with PIPELINE_DEBUG=1 for the traceback"
    say(f"error: unexpected {type(error).__name__}: {safe(error)}{again}")
    return 1


def _is_of_the_database(error: BaseException) -> bool:
    """Asked of what is loaded already: a command that never met a database does not load its library to fail."""
    library = sys.modules.get("sqlalchemy.exc")
    return library is not None and isinstance(error, library.SQLAlchemyError)
