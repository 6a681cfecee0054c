"""A hard one: CUDA in every corner. Docstring says cuda and torch.cuda.is_available()."""
import argparse, os
import torch as th
import torch
from torch import cuda as c
import torch.cuda.amp as amp
from torch.cuda.amp import autocast as ac, GradScaler
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true", help="disable cuda")  # cuda comment
parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
parser.add_argument('--backend', default='cpu:gloo,cuda:nccl')
args = parser.parse_args()
args.cuda = not args.no_cuda and c.is_available()
fish = "barracuda"
path = "checkpoints/cuda/model_cuda.pt"
settings = {"cuda": True, "device": "cuda:1"}
KERNEL = r'''
__global__ void f(float *x) { x[0] = 1; } // torch.cuda.synchronize()
'''
class Batch:
    def __init__(self, x): self.x = x
    def cuda(self, device=None):
        self.x = self.x.cuda(device, non_blocking=True)
        return self
it = iter([torch.ones(1), torch.zeros(1)])
b = Batch(next(it)).cuda()
y = next(it).cuda()
x = torch.zeros(2).to(next(iter([y])))
z = [t.cuda() for t in (x, y)]
if args.cuda:
    print(f"mem {th.cuda.memory_allocated() / 2**20:.1f} of {c.get_device_name(0)!r} {'cuda' if args.cuda else 'cpu'}")
    print(f"""multi
    line {torch.cuda.current_device()} {fish}""")
    print("joined " f"{torch.cuda.current_device()}" " and " f"{c.device_count()}")
rank = 0
d1 = "cuda:%d" % rank
d2 = "cuda:" + str(rank)
d3 = f"cuda:{rank}"
d4 = "cuda:{}".format(rank)
w = torch.zeros(2, device=d1)
w.to(d2); w.to(d3); w.to(d4)
dist.init_process_group("cpu:gloo,cuda:nccl")
with ac(enabled=args.cuda, dtype=th.float16):
    pass
with amp.autocast(True): pass
@ac()
def g(): return 1
class F(torch.autograd.Function):
    @staticmethod
    @amp.custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, x): return x
    @staticmethod
    @amp.custom_bwd
    def backward(ctx, g): return g
s = GradScaler()
sc = amp.GradScaler(init_scale=2., enabled=(args.cuda or 1))
st = th.cuda.Stream(); ev = c.Event(True); ev2 = torch.cuda.Event(enable_timing = True)
with th.cuda.stream(st):
    pass
with torch.cuda.stream(None): pass
with c.device(rank): torch.cuda.synchronize()
with torch.cuda.device(w.device): pass
with th.cuda.device_of(w): pass
T = th.cuda.FloatTensor if args.cuda else th.FloatTensor
t = torch.cuda.FloatTensor(3).fill_(0)
u = x.type(torch.cuda.FloatTensor); u.type('torch.cuda.HalfTensor')
if u.type() == 'torch.cuda.FloatTensor': pass
torch.load(path, map_location="cuda:0")
torch.load(path, map_location=lambda s, l: s.cuda(0))
torch.load(path, map_location=lambda storage, loc: storage)
torch.load(path, map_location={"cuda:0": "cuda:%d" % rank})
gen = torch.Generator(device="cuda")
cuda = th.cuda
cuda.empty_cache(); cuda.reset_max_memory_allocated()
sync = cuda.synchronize
if not x.is_cuda and y.is_cuda == True: pass
assert x.device.type == "cuda" and str(x.device).startswith("cuda")
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
th.set_default_tensor_type(th.cuda.FloatTensor)
th.set_default_tensor_type(torch.cuda.FloatTensor if args.cuda else torch.FloatTensor)
def local():
    from torch.cuda import synchronize, max_memory_allocated as mma
    import torch.cuda.nvtx as nvtx
    nvtx.range_push("a"); nvtx.range_pop()
    with nvtx.range("x"): synchronize()
    return mma()
def torch_param(torch=None):
    return torch.cuda.is_available()
def helper(x, device="cuda", cuda=True):
    return x.to(device) if cuda else x
x.cuda(0); x.cuda(device=rank); x.cuda(rank, True); x.cuda(next(it)); x.cuda(None)
keepme = torch.cuda.device_count()  # causeway: keep
torch.cuda.manual_seed_all(1)
torch.cuda.get_device_capability() >= (7, 0)
if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 7: pass
e = torch.cuda.OutOfMemoryError
g = torch.cuda.CUDAGraph()
h = hasattr(torch.cuda, "amp")
m = torch.nn.DataParallel(torch.nn.Linear(1, 1)).cuda()
n = torch.nn.parallel.DistributedDataParallel(m, device_ids=[rank])
if args.device == "cuda" and "cuda" in args.device: pass
l = torch.utils.data.DataLoader([], pin_memory=True, pin_memory_device="cuda")
torch.cuda.memory_allocated(device="cuda:0")
with torch.autocast("cuda", dtype=torch.float16): pass
with torch.autocast(device_type="cuda", enabled=True): pass
p = torch.cuda.mem_get_info()[0]
torch.cuda.memory.empty_cache()
