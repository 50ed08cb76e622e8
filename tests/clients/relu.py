"""An unmodified client of the driver API: NVIDIA's `cuda.bindings` runs a kernel of ours.

Usage: relu.py PTX ENTRY N BLOCKS THREADS. Computes relu(x) of N floats twice, once by a launch and once by a captured
graph, and compares with its own arithmetic. It does not know which driver it talks to.
"""

import array
import ctypes
import sys

from cuda.bindings import driver as cu


def done(result):
    """The values of a call, or an exception in the driver's words."""
    code, *values = result
    if code != cu.CUresult.CUDA_SUCCESS:
        _, name = cu.cuGetErrorName(code)
        _, text = cu.cuGetErrorString(code)
        raise SystemExit(f"{name.decode()}: {text.decode()}")
    return values[0] if len(values) == 1 else values


def main(path, entry, n, n_blocks, n_threads):
    done(cu.cuInit(0))
    device = done(cu.cuDeviceGet(0))
    print("device", done(cu.cuDeviceGetName(128, device)).split(b"\0")[0].decode())
    print("version", done(cu.cuDriverGetVersion()))
    context = done(cu.cuDevicePrimaryCtxRetain(device))
    done(cu.cuCtxSetCurrent(context))
    stream = done(cu.cuStreamCreate(0))
    with open(path, "rb") as file:
        module = done(cu.cuModuleLoadData(file.read() + b"\0"))
    function = done(cu.cuModuleGetFunction(module, entry.encode()))

    values = array.array("f", [(i % 17) - 8.5 for i in range(n)])
    want = array.array("f", [max(value, 0.0) for value in values])
    n_bytes = 4 * n
    x, y = done(cu.cuMemAlloc(n_bytes)), done(cu.cuMemAlloc(n_bytes))
    done(cu.cuMemcpyHtoD(x, values.buffer_info()[0], n_bytes))
    args = ((int(x), int(y)), (ctypes.c_void_p, ctypes.c_void_p))

    def launch():
        done(cu.cuLaunchKernel(function, n_blocks, 1, 1, n_threads, 1, 1, 0, stream, args, 0))

    def check(how):
        got = array.array("f", bytes(n_bytes))
        done(cu.cuMemcpyDtoH(got.buffer_info()[0], y, n_bytes))
        if got != want:
            raise SystemExit(f"{how}: wrong result")
        print(how, "agrees")

    launch()
    done(cu.cuStreamSynchronize(stream))
    check("launch")

    done(cu.cuMemsetD32(y, 0x7FC00000, n))
    done(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    launch()
    graph = done(cu.cuStreamEndCapture(stream))
    executable = done(cu.cuGraphInstantiate(graph, 0))
    start, end = done(cu.cuEventCreate(0)), done(cu.cuEventCreate(0))
    done(cu.cuEventRecord(start, stream))
    done(cu.cuGraphLaunch(executable, stream))
    done(cu.cuEventRecord(end, stream))
    done(cu.cuEventSynchronize(end))
    if done(cu.cuEventElapsedTime(start, end)) < 0:
        raise SystemExit("time runs backwards")
    check("graph")

    done(cu.cuGraphExecDestroy(executable))
    done(cu.cuGraphDestroy(graph))
    done(cu.cuMemFree(x))
    done(cu.cuMemFree(y))
    done(cu.cuModuleUnload(module))
    done(cu.cuStreamDestroy(stream))
    done(cu.cuDevicePrimaryCtxRelease(device))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(text) for text in sys.argv[3:6]))
