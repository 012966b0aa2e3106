"""The stages of this project. ``PIPELINE`` is the order in which topics pass them; ``ASSEMBLE`` ends each release."""

from stages.assemble import Assemble
from stages.generate import Generate
from stages.publish import Publish
from stages.validate import Validate

PIPELINE = (Generate, Validate, Publish)
ASSEMBLE = Assemble

__all__ = ["ASSEMBLE", "PIPELINE", "Assemble", "Generate", "Publish", "Validate"]
