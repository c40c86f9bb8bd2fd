"""A model inside this process. Methods have the names of SGLang's Engine where they do the same;
fields and answers are those of the HTTP endpoints (docs/api.md)."""

import json
import os
import weakref
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional, Sequence, Union

from . import _engine, answers
from .answers import RequestError

__all__ = ["Engine", "RequestError"]

Json = Any
Fields = Dict[str, Any]
Prompt = Union[str, Sequence[str]]
TokenIds = Union[Sequence[int], Sequence[Sequence[int]]]
Message = Dict[str, Any]


def _arguments(model_path: Union[str, "os.PathLike[str]"], options: Fields) -> List[str]:
    """Options as flags: context_length=4096 -> --context-length 4096, pin_threads=False ->
    --no-pin-threads, lora_paths={"sql": "/adapters/sql"} -> --lora-paths sql=/adapters/sql."""
    arguments = ["--model-path", os.fspath(model_path)]
    for name, value in options.items():
        flag = name.replace("_", "-")
        if value is None or value is True:
            arguments += [f"--{flag}"] if value else []
        elif value is False:
            # Flags are off unless given; this one is on.
            arguments += ["--no-pin-threads"] if name == "pin_threads" else []
        elif isinstance(value, dict):
            arguments += [f"--{flag}", *(f"{key}={item}" for key, item in value.items())]
        elif isinstance(value, (list, tuple)):
            arguments += [f"--{flag}", *map(str, value)]
        else:
            arguments += [f"--{flag}", str(value)]
    return arguments


def _without_none(**fields: Any) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}


class Engine:
    """Loads a model and runs requests in one batch, whichever threads or tasks they come from.

    Args:
        model_path: a GGUF file, a folder with config.json and safetensors, or a model of the Hugging
            Face hub ("Qwen/Qwen3-0.6B", "org/name-GGUF:Q4_K_M"), which is downloaded once.
        options: flags of `tilewright generate --help` with underscores (context_length, tp, threads,
            kv_cache_dtype, quantization, max_total_tokens, log_level ...), and tool_call_parser,
            reasoning_parser, served_model_name, pooling, lora_paths={name: folder}, enable_lora,
            max_lora_rank.

    Raises:
        ValueError: an option or the checkpoint cannot be right.
        FileNotFoundError: there is no such model.
        MemoryError: the KV cache does not fit.
    """

    def __init__(self, model_path: Union[str, "os.PathLike[str]"], **options: Any):
        self._engine = _engine.Engine(_arguments(model_path, options))
        # At the program's end, before the interpreter's parts are gone.
        self._finalizer = weakref.finalize(self, self._engine.close)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Ends what runs and frees the model."""
        self._finalizer()

    # Requests.

    def _start(self, path: str, body: Fields, method: str = "POST") -> Any:
        text = json.dumps(body) if method == "POST" else ""
        return lambda callback: self._engine.start(method, path, text, callback)

    def _ask(self, path: str, body: Optional[Fields] = None, method: str = "POST") -> Json:
        return json.loads(answers.whole(self._start(path, body or {}, method)))

    async def _async_ask(self, path: str, body: Fields) -> Json:
        return json.loads(await answers.async_whole(self._start(path, body)))

    @staticmethod
    def _generate_body(prompt: Optional[Prompt], sampling_params: Any, input_ids: Optional[TokenIds],
                       stream: bool, fields: Fields) -> Fields:
        return _without_none(text=prompt, input_ids=input_ids, sampling_params=sampling_params,
                             stream=stream, **fields)

    def generate(self, prompt: Optional[Prompt] = None,
                 sampling_params: Union[Fields, Sequence[Fields], None] = None, *,
                 input_ids: Optional[TokenIds] = None, stream: bool = False,
                 **fields: Any) -> Union[Fields, List[Fields], Iterator[Fields]]:
        """Continues texts, or token ids.

        Args:
            prompt: a text or a list of them; or input_ids: ids, or a list of lists of them.
            sampling_params: temperature, max_new_tokens, stop, json_schema ...; one, or one each.
            stream: answer an iterator; each item holds the whole text so far.
            fields: return_logprob, logprob_start_len, top_logprobs_num, rid ...

        Returns:
            {"text": ..., "meta_info": {...}}, of lists a list.

        Raises:
            RequestError: a field is wrong, or the prompt too long.
        """
        body = self._generate_body(prompt, sampling_params, input_ids, stream, fields)
        return answers.stream(self._start("/generate", body)) if stream else self._ask("/generate", body)

    async def async_generate(self, prompt: Optional[Prompt] = None,
                             sampling_params: Union[Fields, Sequence[Fields], None] = None, *,
                             input_ids: Optional[TokenIds] = None, stream: bool = False,
                             **fields: Any) -> Union[Fields, List[Fields], AsyncIterator[Fields]]:
        """As generate(); with stream=True, `async for item in await engine.async_generate(...)`."""
        body = self._generate_body(prompt, sampling_params, input_ids, stream, fields)
        if stream:
            return answers.async_stream(self._start("/generate", body))
        return await self._async_ask("/generate", body)

    def chat(self, messages: Sequence[Message], *, stream: bool = False,
             **fields: Any) -> Union[Fields, Iterator[Fields]]:
        """Answers a conversation through the model's chat template.

        Args:
            messages: [{"role": "user", "content": ...}, ...], as OpenAI's.
            stream: answer an iterator of chat.completion.chunk.
            fields: max_completion_tokens, temperature, tools, response_format ...

        Returns:
            OpenAI's chat.completion: ["choices"][0]["message"]["content"].
        """
        body = {"messages": list(messages), "stream": stream, **fields}
        path = "/v1/chat/completions"
        return answers.stream(self._start(path, body)) if stream else self._ask(path, body)

    async def async_chat(self, messages: Sequence[Message], *, stream: bool = False,
                         **fields: Any) -> Union[Fields, AsyncIterator[Fields]]:
        """As chat(), for asyncio."""
        body = {"messages": list(messages), "stream": stream, **fields}
        path = "/v1/chat/completions"
        return answers.async_stream(self._start(path, body)) if stream else await self._async_ask(path, body)

    def encode(self, prompt: Union[Prompt, TokenIds], dimensions: Optional[int] = None) -> Union[Fields, List[Fields]]:
        """Embeddings as SGLang answers: {"embedding": [...]}, of a list of texts a list."""
        vectors = self.embed(prompt, dimensions)
        is_one = isinstance(prompt, str) or (len(prompt) > 0 and isinstance(prompt[0], int))
        found = [{"embedding": vector} for vector in vectors]
        return found[0] if is_one else found

    def embed(self, input: Union[Prompt, TokenIds], dimensions: Optional[int] = None) -> List[List[float]]:
        """A vector of length 1 for each text (or ids): the model's pooled hidden states."""
        answer = self._ask("/v1/embeddings", _without_none(input=input, dimensions=dimensions))
        return [entry["embedding"] for entry in answer["data"]]

    async def async_embed(self, input: Union[Prompt, TokenIds],
                          dimensions: Optional[int] = None) -> List[List[float]]:
        """As embed(), for asyncio."""
        answer = await self._async_ask("/v1/embeddings", _without_none(input=input, dimensions=dimensions))
        return [entry["embedding"] for entry in answer["data"]]

    def score(self, query: Union[str, Sequence[int]], items: Union[Prompt, TokenIds],
              label_token_ids: Sequence[int], apply_softmax: bool = False,
              item_first: bool = False) -> List[List[float]]:
        """How likely each label token comes after the query and an item; a list per item."""
        return self._ask("/v1/score", {"query": query, "items": items, "label_token_ids": list(label_token_ids),
                                       "apply_softmax": apply_softmax, "item_first": item_first})["scores"]

    def logprobs(self, prompt: Optional[Prompt] = None, *, input_ids: Optional[TokenIds] = None,
                 top_logprobs_num: int = 0) -> Union[Fields, List[Fields]]:
        """How likely the model thinks a text (or ids) is, of several a list.

        Returns:
            {"token_ids", "logprobs", "top"}: each token's natural log-probability given those before it
            (None for the first), and with top_logprobs_num (to 20) the likeliest tokens at its place as
            pairs (logprob, id).
        """
        answer = self.generate(prompt, {"max_new_tokens": 0}, input_ids=input_ids, return_logprob=True,
                               logprob_start_len=0, top_logprobs_num=top_logprobs_num)
        found = [{"token_ids": [entry[1] for entry in meta["input_token_logprobs"]],
                  "logprobs": [entry[0] for entry in meta["input_token_logprobs"]],
                  "top": [place and [(entry[0], entry[1]) for entry in place]
                          for place in meta.get("input_top_logprobs") or []]}
                 for meta in (each["meta_info"] for each in (answer if isinstance(answer, list) else [answer]))]
        return found if isinstance(answer, list) else found[0]

    def tokenize(self, text: Prompt, add_special_tokens: bool = True) -> Union[List[int], List[List[int]]]:
        """The ids of a text, or of each."""
        return self._ask("/tokenize", {"prompt": text, "add_special_tokens": add_special_tokens})["tokens"]

    def detokenize(self, ids: TokenIds, skip_special_tokens: bool = True) -> Union[str, List[str]]:
        """The text of ids, or of each list of them."""
        return self._ask("/detokenize", {"tokens": ids, "skip_special_tokens": skip_special_tokens})["text"]

    def get_server_info(self) -> Fields:
        """Settings and counters."""
        return self._ask("/get_server_info", method="GET")

    def load_lora_adapter(self, lora_name: str, lora_path: Union[str, "os.PathLike[str]"]) -> Fields:
        """Loads an adapter in PEFT's layout; requests name it as lora_path. The engine must have been made
        with enable_lora=True or lora_paths. Raises RequestError where it does not fit."""
        return self._ask("/load_lora_adapter", {"lora_name": lora_name, "lora_path": os.fspath(lora_path)})

    def unload_lora_adapter(self, lora_name: str) -> Fields:
        """Takes the name away; requests under way keep the adapter to their end."""
        return self._ask("/unload_lora_adapter", {"lora_name": lora_name})

    def flush_cache(self) -> None:
        """Drops the prefix cache; raises RequestError while requests run."""
        answers.whole(self._start("/flush_cache", {}))
