"""Large language models on CPUs.

    with tilewright.Engine("Qwen/Qwen3-0.6B") as engine:
        print(engine.generate("The sky is")["text"])
"""

from ._engine import __version__
from .engine import Engine, RequestError

__all__ = ["Engine", "RequestError", "__version__"]
