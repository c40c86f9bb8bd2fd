"""What is asked: prompts (token ids or text) and how many tokens each answer gets."""
import json
import random

# Ordinary tokens of nearly every vocabulary: neither bytes and specials at its begin nor its end.
FIRST_TOKEN, LAST_TOKEN = 1000, 20000
CHARACTERS_PER_TOKEN = 4


def random_requests(count, input_len, output_len, range_ratio, seed):
    """Lengths uniform between `range_ratio` of the given ones and these."""
    numbers = random.Random(seed)

    def length(longest):
        return numbers.randint(max(1, int(longest * range_ratio)), longest)

    return [([numbers.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(length(input_len))],
             length(output_len)) for _ in range(count)]


def sharegpt_requests(path, count, output_len, seed):
    """First turns of conversations in ShareGPT's form: [{"conversations": [{"value"}, {"value"}]}].
    Without `output_len` an answer gets as many tokens as the recorded one has, at four characters
    a token."""
    with open(path, encoding="utf-8") as file:
        conversations = json.load(file)
    turns = [[turn["value"] for turn in entry.get("conversations", [])[:2]] for entry in conversations]
    turns = [turn for turn in turns if len(turn) == 2 and all(turn)]
    if not turns:
        raise ValueError(f"{path}: no conversation with a question and an answer")
    random.Random(seed).shuffle(turns)
    chosen = [turns[i % len(turns)] for i in range(count)]
    return [(question, output_len or max(1, len(answer) // CHARACTERS_PER_TOKEN))
            for question, answer in chosen]
