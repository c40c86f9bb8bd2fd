"""A conversation in the terminal: python chat.py MODEL"""
import sys

import tilewright

with tilewright.Engine(sys.argv[1]) as engine:
    messages = []
    while question := input("> "):
        messages.append({"role": "user", "content": question})
        answer = ""
        for chunk in engine.chat(messages, stream=True, max_completion_tokens=512):
            piece = chunk["choices"][0]["delta"].get("content") or ""
            answer += piece
            print(piece, end="", flush=True)
        print()
        messages.append({"role": "assistant", "content": answer})
