"""Asks an embedding service as its vendor's own program does: `python embedding_sdks.py PROVIDER ADDRESS KEY`.

It embeds a text as a document and as a question, and prints how many numbers the vectors have.
"""

from __future__ import annotations

import sys

TEXT, MODEL = "a ship", "m-1"


def openai(address: str, key: str) -> list[list[float]]:
    from openai import OpenAI

    client = OpenAI(api_key=key, base_url=f"{address}/v1")
    made = client.embeddings.create(model=MODEL, input=[TEXT], encoding_format="float", dimensions=64)
    return [each.embedding for each in made.data]


def gemini(address: str, key: str) -> list[list[float]]:
    from google.genai import Client
    from google.genai.types import EmbedContentConfig, HttpOptions

    client = Client(api_key=key, vertexai=False, http_options=HttpOptions(base_url=address, api_version="v1beta"))
    kinds = ("RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY")
    configs = [EmbedContentConfig(task_type=kind, output_dimensionality=64) for kind in kinds]
    made = [client.models.embed_content(model=MODEL, contents=[TEXT], config=each) for each in configs]
    return [vector.values or [] for each in made for vector in each.embeddings or []]


def mistral(address: str, key: str) -> list[list[float]]:
    try:
        from mistralai.client import Mistral
    except ImportError:
        from mistralai import Mistral

    made = Mistral(api_key=key, server_url=address).embeddings.create(model=MODEL, inputs=[TEXT])
    return [each.embedding or [] for each in made.data]


def voyage(address: str, key: str) -> list[list[float]]:
    from voyageai import Client

    client = Client(api_key=key, base_url=f"{address}/v1")
    made = [client.embed([TEXT], model=MODEL, input_type=kind, truncation=None) for kind in ("document", "query")]
    return [vector for each in made for vector in each.embeddings]


if __name__ == "__main__":
    provider, *place = sys.argv[1:]
    print([len(vector) for vector in globals()[provider](*place)])
