"""Peers on the same GPU: PyTorch eager, torch.compile(max-autotune), and cuBLAS as the floor of the matrix
products. A peer that is not there is counted and named."""

import importlib.util


def gpu_name():
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def contestants(kit, model, n_runs):
    """Functions by name; each runs the model n_runs times and gives the times in ns."""
    names = ["torch eager", "torch.compile(max-autotune)", "cuBLAS floor"]
    if importlib.util.find_spec("torch") is None:
        return missing(kit, model, names, "no torch")
    import torch

    if not torch.cuda.is_available():
        return missing(kit, model, names, "torch sees no GPU")
    if model.torch is None:
        return missing(kit, model, names, "the model is not from torch")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    module, inputs = model.torch
    module, inputs = module.cuda(), inputs.cuda()

    def timed(function):
        def run():
            samples = []
            with torch.no_grad():
                for _ in range(3):
                    function()
                for _ in range(n_runs):
                    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    start.record()
                    function()
                    end.record()
                    end.synchronize()
                    samples.append(start.elapsed_time(end) * 1e6)
            return samples

        return run

    found = {"torch eager": timed(lambda: module(inputs))}
    if kit.seconds_left() > 120:
        compiled = torch.compile(module, mode="max-autotune")
        found["torch.compile(max-autotune)"] = timed(lambda: compiled(inputs))
    else:
        missing(kit, model, ["torch.compile(max-autotune)"], "no time left to tune it")
    found["cuBLAS floor"] = timed(products(torch, module, inputs))
    return found


def products(torch, module, inputs):
    """The matrix products of the model's linear layers alone, by cuBLAS: nothing that computes them in f32
    is faster than that library by much."""
    calls = []

    def hook(layer, arguments, _):
        if isinstance(layer, torch.nn.Linear):
            rows = arguments[0].reshape(-1, arguments[0].shape[-1])
            calls.append((rows.detach().clone(), layer.weight.detach().t().contiguous()))

    handles = [layer.register_forward_hook(hook) for layer in module.modules()]
    with torch.no_grad():
        module(inputs)
    for handle in handles:
        handle.remove()
    return lambda: [torch.mm(a, b) for a, b in calls]


def missing(kit, model, names, why):
    for name in names:
        kit.skip(f"{name} on {model.name}", why)
    return {}
