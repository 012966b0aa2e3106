"""A real PostgreSQL without any setup, in the project's own directory; engine room.

``EmbeddedServer(embedded_home(project)).start()`` returns a URL. It is never used when a database URL is configured.
"""

from pipeline.embedded.errors import EmbeddedError
from pipeline.embedded.places import embedded_home
from pipeline.embedded.server import EmbeddedServer

__all__ = ["EmbeddedError", "EmbeddedServer", "embedded_home"]
