"""Figures of a run, by the names that SGLang's bench_serving gives them."""
import statistics


def percentile(values, share):
    """Between the two nearest values, as numpy does."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def spread(name, seconds):
    if not seconds:
        return {}
    return {f"mean_{name}_ms": statistics.fmean(seconds) * 1e3,
            f"median_{name}_ms": statistics.median(seconds) * 1e3,
            f"std_{name}_ms": statistics.pstdev(seconds) * 1e3,
            f"p90_{name}_ms": percentile(seconds, 0.90) * 1e3,
            f"p99_{name}_ms": percentile(seconds, 0.99) * 1e3}


def figures(timings, duration):
    done = [timing for timing in timings if not timing.problem]
    inputs = sum(timing.prompt_tokens for timing in done)
    outputs = sum(timing.output_tokens for timing in done)
    latencies = [timing.latency for timing in done]
    return {
        "duration": duration, "completed": len(done), "failed": len(timings) - len(done),
        "total_input_tokens": inputs, "total_output_tokens": outputs,
        "request_throughput": len(done) / duration, "input_throughput": inputs / duration,
        "output_throughput": outputs / duration, "total_throughput": (inputs + outputs) / duration,
        "concurrency": sum(latencies) / duration,
        **spread("e2e_latency", latencies),
        **spread("ttft", [timing.ttft for timing in done]),
        **spread("tpot", [timing.tpot for timing in done if timing.tpot is not None]),
        **spread("itl", [gap for timing in done for gap in timing.gaps]),
    }


def table(result):
    rows = [(name.replace("_", " "), value) for name, value in result.items()]
    return "\n".join(f"{name:28} {value:12.2f}" if isinstance(value, float) else f"{name:28} {value!s:>12}"
                     for name, value in rows)
