"""Many requests in one batch, from asyncio: python batch.py MODEL"""
import asyncio
import sys

import tilewright


async def main():
    with tilewright.Engine(sys.argv[1]) as engine:
        prompts = [f"{number} plus {number} is" for number in range(16)]
        answers = await asyncio.gather(*(
            engine.async_generate(prompt, {"temperature": 0, "max_new_tokens": 8}) for prompt in prompts))
        for prompt, answer in zip(prompts, answers):
            print(prompt, "->", answer["text"].strip())


asyncio.run(main())
