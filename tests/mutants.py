"""Bugs that the tests must catch: `make mutants`.

Each edit below is applied alone to a copy of the repository, and the tests that matter are
run there. One that they pass survives. One whose tests take too long is not known to be
caught: the machine may only be busy. For either, the exit status is 1. An edit whose text
is not there any more, or tests that cannot run, end everything at once. Words limit it to
files that begin so: `python tests/mutants.py 01_cpu beyond`.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 400  # that a mutant's tests may take
PASSED, FAILED, TIMED_OUT = "pass", "fail", "time out"  # what tests do
WORDS = {PASSED: "SURVIVED", FAILED: "caught", TIMED_OUT: "timed out"}  # so an edit ...
CODE = "run/test_failing.py -k code_in_it"
COMPARE = "run/test_compare.py"
CURVE = "stages/test_curve.py"
DATA = "run/test_data.py"
DOCTOR = "run/test_doctor.py -k 'gpu or driver or tf32 or error_is'"
DOCS = "pages/test_blocks.py -k 'noticed or any_order'"
EVALUATION = "stages/test_evaluation.py"
FULL_DISK = "run/test_failing.py -k full_disk"
GPUS = "run/test_plan.py -k 'shell_lists or cannot_use'"
PLAN = "run/test_plan.py"
MECHANISM = "stages/test_mechanism.py"
REFERENCE = "stages/test_reference.py"
RENDEZVOUS = "run/test_rendezvous.py"
REFUSALS = "stages/test_refusals.py"
NODES = "run/test_nodes.py"
RESTARTS = "run/test_launch.py -k restarts_do_not"
BACKEND = "stages/test_copied.py -k backend"
BEYOND = "beyond/test_beyond.py -k 'in_float64 or shards_differ or micro'"
OPTIMIZERS = "beyond/test_optimizers.py"
RESUME = "beyond/test_resume.py -k 'not random and not 4-'"
SCHEDULER = "stages/test_copied.py -k scheduler"
OWN = "beyond/test_own_script.py"
SHARDED = "beyond/test_sharded_checkpoint.py"

# fmt: off
MUTANTS = {  # file -> (text, text in its place, what that simulates, tests)
    "01_cpu/mnist.py": [
        ("manual_seed(args.seed + epoch)", "manual_seed(args.seed)", "every epoch in one order", REFERENCE),
        ("manual_seed(args.seed + epoch)", "manual_seed(args.seed + epoch - 1)", "epochs counted from 0", REFERENCE),
        ("manual_seed(args.seed)", "manual_seed(0)", "--seed ignored by the weights", REFERENCE),
        ("images / 255", "images / 256", "another scale of the images", REFERENCE),
        ("nn.ReLU()", "nn.Tanh()", "another network", REFERENCE),
        ("drop_last=False", "drop_last=True", "the last images of an epoch dropped", REFERENCE),
        ("        optimizer.zero_grad()\n", "", "gradients that pile up", REFERENCE),
        ("lr=args.lr", "lr=0.1", "--lr ignored", REFERENCE),
        ("Net(args.hidden)", "Net(128)", "--hidden ignored", REFERENCE),
        ("* len(labels)", "* 64", "a smaller last batch weighs as much as the others", REFERENCE),
        ("argmax(dim=1)", "argmin(dim=1)", "the least likely digit taken", REFERENCE),
        ("args.data, train=False", "args.data", "evaluated on the training images", REFERENCE),
        ("print(epoch, loss,", "print(epoch, round(loss, 6),", "metrics.csv with six digits", REFERENCE),
        (".detach().double()", ".detach()", "the loss added up in float32", CURVE),
        ("    model.train()\n", "", "training in evaluation mode from epoch 2 on", MECHANISM),
        ("    model.eval()\n", "", "evaluation in training mode", MECHANISM),
        ("@torch.no_grad()\n", "", "evaluation with gradients", MECHANISM),
        ('"w" if epoch == 1 else "a"', '"a"', "an earlier run's lines kept in metrics.csv", CURVE),
        ("    torch.save(weights, path)\n", "    torch.save(model, path)\n", "the model pickled, not its weights", CURVE),
        ("    main(parse_args())", "    try:\n        main(parse_args())\n    except AssertionError:\n        raise SystemExit('stopped') from None", "a learner's assert swallowed", REFUSALS),
    ],
    "03_dp/mnist.py": [
        ("nn.DataParallel(model)", "model", "no DataParallel", MECHANISM),
        ("train_epoch(dp_model", "train_epoch(model", "trained past DataParallel", MECHANISM),
        ("save(model, args", "save(dp_model, args", "keys that begin with module.", CURVE),
    ],
    "04_ddp/mnist.py": [
        ("        sampler.set_epoch(epoch)", "        pass", "set_epoch forgotten", CURVE),
        ("args.batch_size // world_size", "args.batch_size", "each rank takes the whole batch size", CURVE),
        ("    dist.all_reduce(totals)", "    pass", "the loss of rank 0 alone", CURVE),
        ("    loss_sum, count = totals\n", "    loss_sum = totals[0]\n", "the losses of all over the images of one", CURVE),
        ("nn.parallel.DistributedDataParallel(model)", "model", "no DDP", CURVE),
        ("train_epoch(ddp_model", "train_epoch(model", "trained past DDP", CURVE),
        ("evaluate(model, test)", "evaluate(ddp_model, test)", "rank 0 alone evaluates through DDP", MECHANISM),
        ("save(model, args", "save(ddp_model, args", "keys that begin with module.", CURVE),
        ("lr=args.lr", "lr=args.lr * world_size", "the rate scaled, the batch not", CURVE),
        ("(train, seed=args.seed)", "(train)", "--seed ignored by the shuffling", REFERENCE),
        ("(train, seed=args.seed)", "(train, seed=args.seed, drop_last=True)", "shards cut instead of padded", REFERENCE),
        ("(train, seed=args.seed)", "(train, shuffle=False)", "no shuffling", CURVE),
        ("        if rank == 0:\n            correct", "        if True:\n            correct", "two ranks evaluate and write", MECHANISM),
        ("        if rank == 0:\n            correct", "        if rank > 0:\n            continue\n        if True:\n            correct", "a scheduler below steps on rank 0 alone", SCHEDULER),
        ("    dist.destroy_process_group()\n", "", "the process group left behind", MECHANISM),
        ("if args.batch_size % world_size:", "if False:", "a batch that cannot be shared is taken", REFUSALS),
        ('if "RANK" not in os.environ:', "if False:", "no word on torchrun", REFUSALS),
        ('    world_size = int(os.environ["WORLD_SIZE"])\n', "    dist.init_process_group(args.backend)\n    world_size = dist.get_world_size()\n", "refused once all have joined", REFUSALS),
        ('    rank = int(os.environ["RANK"])\n', '    import sys\n    rank = int(os.environ["RANK"])\n    sys.stdout = sys.stdout if rank == 0 else open(os.devnull, "w")\n', "a rank's own print silenced", REFUSALS),
        ("    if rank == 0:\n        print", "    if True:\n        print", "every rank prints the header", CURVE),
        ("    if dist.get_rank() == 0:\n", "    if True:\n", "a progress bar on each rank", "stages/test_terminal.py"),
        ('"nccl" if DEVICE == "cuda" else', '"nccl" if torch.cuda.device_count() > 1 else', "the backend found by counting GPUs", BACKEND),
        (" % torch.cuda.device_count()", "", "ranks that see one GPU take another", BACKEND),
    ],
    "05_ddp_inference/mnist.py": [
        ("range(rank, len(test), world_size)", "range(0, len(test), world_size)", "every rank evaluates the same shard", EVALUATION),
        ("range(rank, len(test), world_size)", "range(rank, len(test) - 1, world_size)", "an image that nobody evaluates", EVALUATION),
        ("    dist.all_reduce(counts)\n", "", "the counts of rank 0 alone", EVALUATION),
        ("        model.load_state_dict(weights)\n", "", "a fresh network evaluated", EVALUATION),
        ("torch.load(args.checkpoint, map_location=\"cpu\", weights_only=True)", "torch.load(args.checkpoint, map_location=\"cpu\", weights_only=False)", "a checkpoint may run code", CODE),
        ("model.load_state_dict(weights)\n", "model.load_state_dict(weights, strict=False)\n", "a checkpoint of other keys passes", REFUSALS),
        ("evaluate(model, shard)\n        if rank == 0:\n            report", "evaluate(model, test)\n        if rank == 0:\n            report", "every rank evaluates all images", CURVE),
        ("evaluate(model, shard)\n        if rank == 0:\n            report", "evaluate(ddp_model, shard)\n        if rank == 0:\n            report", "evaluated through DDP", MECHANISM),
        ("        if rank == 0:\n            report(", "        if rank > 0:\n            continue\n        if True:\n            report(", "a scheduler below steps on rank 0 alone", SCHEDULER),
        ("@torch.no_grad()\n", "", "evaluation with gradients", MECHANISM),
    ],
    "06_model_parallel/mnist.py": [
        ("self.layers[:3](images", "self.layers[:2](images", "a layer lost between the halves", CURVE),
        ("manual_seed(args.seed + epoch)", "manual_seed(args.seed)", "every epoch in one order", CURVE),
    ],
    "beyond/07_fsdp/mnist.py": [
        ("    dist.all_reduce(steps, dist.ReduceOp.MAX)\n", "", "a rank evaluates more batches than the others", BEYOND),
        ("steps.item()", "1", "all images evaluated in one batch", "beyond/test_beyond.py -k shards_differ"),
        ("(model.layers[1], model.layers[3], model)", "(model,)", "the whole model gathered at once", "beyond/test_beyond.py -k fsdp_keeps"),
        ("full_state_dict=True, ", "", "rank 0's part saved for the whole", BEYOND),
        ("        sampler.set_epoch(epoch)", "        pass", "set_epoch forgotten", BEYOND),
        ("dcp_state.get_model_state_dict(model, options=options)", "{n: p.full_tensor() for n, p in model.state_dict().items()}", "a model with buffers cannot be saved", OPTIMIZERS),
    ],
    "beyond/08_tensor_parallel/mnist.py": [
        ('"layers.1": columns, "layers.3": rows', '"layers.1": columns', "half of the layers whole on every rank", "beyond/test_beyond.py -k tensor_parallel_moves"),
        ("manual_seed(args.seed + epoch)", "manual_seed(args.seed + rank)", "other images on each rank", BEYOND),
    ],
    "beyond/09_pipeline/mnist.py": [
        ("(loss / len(labels)).backward()", "(loss / len(target)).backward()", "the mean of each micro-batch, added up", BEYOND),
        ("    dist.broadcast(correct, 1)\n", "", "rank 0 says that nothing is right", BEYOND),
        ("halves[0] | halves[1]", "halves[0]", "one half saved", BEYOND),
    ],
    "beyond/10_hybrid/mnist.py": [
        ("dist.all_reduce(counts, group=dp)", "dist.all_reduce(counts)", "every image counted twice", BEYOND),
        ("(train, pairs, pair, seed", "(train, pairs, 0, seed", "each pair trains on the same images", BEYOND),
        ("args.batch_size // pairs", "args.batch_size // world_size", "half a batch", BEYOND),
    ],
    "beyond/11_resume/mnist.py": [
        ('    torch.save(state, path.with_suffix(".tmp"))\n    os.replace(path.with_suffix(".tmp"), path)\n', "    torch.save(state, path)\n", "state.pth written in place", RESUME),
        ('    torch.save(state, path.with_suffix(".tmp"))\n    os.replace(path.with_suffix(".tmp"), path)\n', "    torch.save(state, path)\n", "no earlier state on a full disk", FULL_DISK),
        ('        optimizer.load_state_dict(state["optimizer"])\n', "", "momentum lost by --resume", RESUME),
        ('range(state["epoch"] + 1,', "range(1,", "--resume from epoch 1 again", RESUME),
        ('range(state["epoch"] + 1,', 'range(state["epoch"],', "the last epoch trained twice", RESUME),
        (".splitlines()[:epoch]", ".splitlines()", "an epoch's line twice in metrics.csv", RESUME),
        ("    dist.broadcast_object_list(states)\n", "", "ranks resume from epochs of their own", RESUME),
        ("args.resume and state_path", "state_path", "an earlier run goes on unasked", RESUME),
        ('state_path, map_location="cpu", weights_only=True', 'state_path, map_location="cpu", weights_only=False', "a state.pth may run code", CODE),
        ("            save(state, state_path)\n", "        if rank == 0 and epoch == args.epochs:\n            save(state, state_path)\n", "the state saved at the end alone", RESUME),
    ],
    "beyond/12_sharded_checkpoint/mnist.py": [
        ('[int(path.parent.name) for path in checkpoints.glob("*/.metadata")]', '[int(path.name) for path in checkpoints.glob("*")]', "the newest folder, though it is not whole", SHARDED),
        ("last = [max(complete)]", "last = [int(max(map(str, complete)))]", "epoch 9 after epoch 10", SHARDED),
        ("        shutil.rmtree(checkpoints, ignore_errors=True)\n", "        pass\n", "an earlier run's checkpoints kept", SHARDED),
        ('        dcp_state.set_optimizer_state_dict(model, optimizer, state["optimizer"])\n', "", "the learning rate lost by --resume", SHARDED),
        ("    weights = dcp_state.get_model_state_dict(model)\n", "    whole = dcp_state.StateDictOptions(full_state_dict=True)\n    weights = dcp_state.get_model_state_dict(model, options=whole)\n", "the whole model gathered for a checkpoint", SHARDED),
        (".splitlines()[:epoch]", ".splitlines()", "an epoch's line twice in metrics.csv", SHARDED),
    ],
    "beyond/own_script/after_ddp.py": [
        (" * world_size + rank", " * world_size", "the same crops and dropout on every rank", OWN + " -k random"),
        ('        scheduler.load_state_dict(state["scheduler"])\n', "", "the warm-up again after --resume", OWN + " -k killed"),
        ("args.seed, drop_last=True", "args.seed", "a step more than one process takes", OWN + " -k two_ranks"),
        ("        dist.broadcast(buffer, 0)\n", "        pass\n", "each rank evaluates its own BatchNorm", OWN + " -k saved"),
    ],
    "beyond/own_script/after_fsdp.py": [
        ("        dist.broadcast(buffer, 0)\n", "        pass\n", "each rank evaluates its own BatchNorm", OWN + " -k saved"),
        ("set_requires_gradient_sync(last)", "set_requires_gradient_sync(not last)", "steps of gradients that nobody averaged", OWN + " -k two_ranks"),
    ],
    "tools/bench/benchmark.py": [
        ('    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)\n', "", "GPUS= ignored by bench and trace", "bench/test_benchmark.py -k launch_would"),
        ('samples += other["samples"][name]', "pass", "half of the samples lost", "bench/test_benchmark.py -k all_starts"),
    ],
    "tools/bench/memory_rank.py": [
        ('tensor.to_local() if hasattr(tensor, "to_local") else tensor', "tensor", "whole tensors counted on every rank", "bench/test_memory.py -k stores"),
    ],
    "tools/bench/predict.py": [
        ('given["STEP"] + inside + between', 'given["STEP"] + inside', "nodes that need no network", "bench/test_predict.py -k one_ring"),
    ],
    "tools/bench/figures.py": [
        ("max(last - first, 0.002 * (end - start))", "last - first", "a legend names what is too short to be seen", "bench/test_timeline.py -k legend"),
        ('span[1] == "all-reduce", ', "", "an all-reduce hidden by the waiting for it", "bench/test_timeline.py -k legend"),
    ],
    "tools/bench/tables.py": [
        ("return max(0.0, share)", "return share", "a step that takes less than its exchange", "bench/test_benchmark.py -k shares"),
    ],
    "tools/bench/timeline.py": [
        ("waits = max(reduced, default=end)", "waits = end", "a backward pass that never waits", "bench/test_timeline.py -k 04_ddp"),
        ('if event.get("cat") != "user_annotation":', 'if event.get("ph") != "X":', "labels of a trace counted twice", "bench/test_timeline.py -k count_once"),
    ],
    "tools/bench/timeline_rank.py": [
        ("    setattr(owner, method, labeled)\n", "    pass\n", "no labels in nn.DataParallel", "bench/test_timeline.py -k torchs_own"),
    ],
    "tools/pages/pictures.py": [
        ("sampler.set_epoch(epoch if calls_set_epoch else 0)", "sampler.set_epoch(0)", "the picture of set_epoch without it", "pages/test_pictures.py -k so"),
        ("or new != path.read_text()", "", "stale pictures kept", "pages/test_pictures.py -k anew"),
    ],
    "tools/pages/notebook.py": [
        ("if one.device_type == DeviceType.CPU]", "]", "a profile counts kernels twice", "pages/test_notebooks.py -k counts_once"),
        ("    if any(one.self_device_time_total for one in operations):", "    if True:", "no time at all without CUPTI", "pages/test_notebooks.py -k counts_once"),
        ('given = os.environ.get("DATA")', 'given = os.environ.get("DATA", False) is not False and os.environ["DATA"] + "/"', "an empty variable taken as given", "pages/test_notebooks.py -k empty_variable"),
    ],
    "tools/run/compare.py": [
        ("    if not all(math.isfinite(loss) for loss in losses):", "    if False:", "NaN is no matter", COMPARE),
        ("    if same_bits:", "    if False:", "rounding allowed everywhere", COMPARE),
        ("> COUNTS * one[2]", "> one[2]", "the counts do not matter", COMPARE),
        ("min(1e-5 * 20 ** (epoch - 1), 5e-3)", "5e-3", "one wide tolerance for all epochs", COMPARE),
        ("if error < SMALL", "if False", "images twice and TF32 are not named", COMPARE),
        ("if any(one[2] != other[2] for one, other in pairs):", "if False:", "another number of test images does not matter", COMPARE),
        ("flags.stat().st_mtime > metrics", "0 > metrics", "flags of a run that wrote no metrics", COMPARE),
        ("        if not equal:\n", "        if False:\n", "a difference that does not end in exit status 1", COMPARE),
    ],
    "tools/run/stages.py": [
        ("cpu_processes=4", "cpu_processes=2", "a hybrid begun on two ranks", "lab/test_exercise.py -k hybrid"),
    ],
    "tools/run/launch.py": [
        ("        if status:\n            sys.exit(f", "        if False:\n            sys.exit(f", "`make all` goes on after a stage that failed", "run/test_launch.py -k all_stops"),
        ("    if state.exists():\n", "    if False:\n", "RESTARTS goes on with an earlier run", RESTARTS),
        ("fcntl.LOCK_EX |", "fcntl.LOCK_SH |", "two runs in one folder", "run/test_failing.py -k second_run"),
        ("        data.verify(root)\n", "        pass\n", "trained on a folder without MNIST", "run/test_launch.py -k refuses"),
    ],
    "tools/run/plan.py": [
        ('if "NNODES" not in given:', 'if "NNODES" not in given and "MASTER_ADDR" not in given:', "MASTER_ADDR in the shell refused", "run/test_plan.py -k only_nnodes"),
        ('environment["CUDA_VISIBLE_DEVICES"] = ",".join', '_ = ",".join', "GPUS= hides nothing", PLAN),
        ("max(self.wait // 2, 1)", "self.wait * 2", "torchrun waits longer than WAIT", NODES),
        ("    if any(word.startswith(\"--backend\")", "    if any(word is None", "--backend nccl replaced in silence", PLAN),
    ],
    "tools/run/flags.py": [
        ("allow_abbrev=False, ", "", "--batch taken for --batch-size", PLAN),
    ],
    "tools/run/gpus.py": [
        ("    if batch % shares == 0:", "    if True:", "a batch that cannot be shared starts", PLAN),
        ("    return fewer[-1], notes\n", "    return wanted, notes\n", "three ranks for a batch of 64", PLAN),
        ("    elif count == nodes == 1 and", "    elif False and", "one rank on a single GPU, which exchanges nothing", PLAN),
        ("        return torch.cuda.device_count() if torch.cuda.is_available() else 0", "        return torch.cuda.device_count()", "GPUs counted that CUDA cannot use", GPUS),
        ('listed.split(",") if listed else numbers', "numbers", "GPUS=0 is another's GPU on a shared machine", GPUS),
        ("            chosen = chosen[:1]\n", "            pass\n", "stage 02 sees two GPUs", PLAN),
    ],
    "tools/run/supervise.py": [
        ("[link] if lock is None else [link, lock]", "[link]", "two runs in one folder after a killed launcher", "run/test_failing.py -k second_run"),
        ("        end_children()\n    status = ", "        child.kill()\n    status = ", "Ctrl-C leaves the ranks behind", "run/test_failing.py -k ctrl_c"),
    ],
    "tools/run/rendezvous.py": [
        ('if other["rank"] == entry["rank"]:', "if False:", "a NODE_RANK given twice", f"{RENDEZVOUS} -k twice"),
        ("if found != expected:", "if False:", "other settings on one node", f"{RENDEZVOUS} -k settings"),
        ("failure=out_of_reach(name, values)", "", "a firewall that opens one port only", f"{RENDEZVOUS} -k firewall"),
        ("given or interface_of(group.address)", "given or 'lo'", "gloo on the loopback interface", f"{RENDEZVOUS} -k two_machines"),
        ('            self.tell([{"failure": str(failure)}])\n', "", "one node alone says why", f"{RENDEZVOUS} -k twice"),
        ("                del self.links[one]\n", "                pass\n", "a node that was stopped cannot come again", f"{RENDEZVOUS} -k come_again"),
    ],
    "Makefile": [
        ("setup: $(NOTEBOOKS)", "setup: $(STAGES)", "make setup without notebooks", "run/test_install.py -k larger_size"),
        ("@touch $@ $(HOLDS_$*)", "@touch $@", "the stages installed again after setup", "run/test_install.py -k larger_size"),
    ],
    "tools/run/install.py": [
        ("        if not was_there:\n", "        if True:\n", "a failed venv takes a working .venv with it", "run/test_install.py -k takes_nothing"),
        ('["--no-deps", ', '[', "torch's index asked for all packages, too", "run/test_install.py -k holds_the_notebooks"),
        ('get(download, "notebooks"', 'get(download, "stages"', "a wheelhouse without notebooks", "run/test_install.py -k holds_the_notebooks"),
        ("elif with_gpu_packages or not", "elif not", "CUDA's packages left out of torch with CUDA", "run/test_install.py -k default_index"),
        ("packages = preflight.pip_index(PYTHON)", "packages = preflight.PYPI", "pip's own index is not asked", "run/test_install.py -k default_index"),
    ],
    "tools/run/preflight.py": [
        ("        if free < gigabytes:\n", "        if False:\n", "a full disk not said", "run/test_install.py -k what_is_wrong"),
        ('"/usr/lib/wsl/lib/libcuda.so.1"', '"/nowhere"', "the driver of WSL not found", "run/test_install.py -k signs"),
    ],
    "tools/run/data.py": [
        ("if not check_integrity(path, md5):", "if False:", "files that are not the official ones", DATA),
        ("        if size != expected:\n", "        if False:\n", "damaged data are trained on", DATA),
        ("        raw.mkdir(parents=True)\n", "        raw.mkdir(parents=True)\n        shutil.rmtree(FULL, ignore_errors=True)\n", "the old set deleted before the new one is checked", DATA),
        ("                OFFLINE.touch()\n", "                pass\n", "a download tried again in every run", DATA),
    ],
    "tools/run/doctor.py": [
        ("if FAILURE in verdicts.values():", "if False:", "a failure with exit status 0", "run/test_doctor.py -k failure"),
        ("min(built_for, default=0)", "0", "a GPU that is too old for this torch is in order", DOCTOR),
        ("        why = cuda_error()\n", "        why = ''\n", "the reason of CUDA not given", DOCTOR),
        ("        if not sent.equal(", "        if sent is None and not sent.equal(", "copies between GPUs not looked at", DOCTOR),
        ("error[0] if error else ", "", "a warning taken for the error", DOCTOR),
        ('if os.environ.get(name) == "1":', "if False:", "TF32 by a variable not said", DOCTOR),
        ("if not pin.specifier.contains(found, prereleases=True):", "if False:", "packages always as pinned", "run/test_doctor.py -k pins"),
        ("    if free < 2**28:", "    if False:", "a full disk is in order", "run/test_doctor.py -k room"),
        ("    if threads > count:", "    if False:", "too many threads not said", "run/test_doctor.py -k threads"),
        ("except (Exception, SystemExit) as error:", "except Exception as error:", "one refusal ends the doctor", "run/test_doctor.py -k failure"),
        ("train, test = data.check(root)", "train, test = 4000, 1000", "damaged data are in order", "run/test_doctor.py -k damaged"),
    ],
    "tools/pages/blocks.py": [
        ("        return old == new\n", "        return True\n", "stale tables and diffs pass", DOCS),
        ("if sorted(numbers) != needed:", "if False:", "a hunk without its reason", DOCS),
    ],
    "tools/lab/progress.py": [
        ("max(times, key", "min(times, key", "the exercise begun first is checked", "lab/test_commands.py -k last"),
    ],
    "tools/lab/commands.py": [
        ("done.unlink(missing_ok=True)", "pass", "solved stays solved, whatever is done to it", "lab/test_commands.py -k done"),
    ],
    "tools/lab/checks.py": [
        ("CLOSE = 1e-5", "CLOSE = 1e-1", "wrong losses pass", "lab/test_checks.py"),
        ("            if digest != steps[0][number]:\n", "            if False:\n", "ranks may drift apart", "lab/test_checks.py"),
    ],
    "tools/lab/setting.py": [
        ('            words.append(f"RESUME={self.resume}")\n', "            pass\n", "the command of a message does not resume", "lab/test_trying.py -k repeats"),
        ("            if path.name not in self.keep:\n", "            if False:\n", "make try keeps what the check deletes", "lab/test_trying.py -k deletes"),
    ],
    "tools/lab/exercise.py": [
        ("    return committed(stage) or script", "    return script", "an edited stage breaks the lab", "lab/test_commands.py -k edit"),
    ],
    "tools/run/ranks.py": [
        ("    end_all(ranks)\n", "    pass\n", "a run leaves processes behind", "lab/test_accidents.py -k daemon"),
    ],
    "tools/lab/recorder.py": [
        ("for state in optimizer.state.values():", "for state in []:", "an optimizer's state not seen", "lab/test_exercise.py -k zero"),
        ("        if weights or fingerprints:\n", "        if False:\n", "images not seen at the network", "lab/test_recorder.py -k known"),
        ("    if {args[0].dtype, weight.dtype} == FLOATS:", "    if False:", ".float() in a data set ends in an error", "lab/test_recorder.py -k known"),
    ],
}
# fmt: on


def copy(folder):
    """Copy the files of the repository, without what git ignores; return the copy."""
    words = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, names.stdout.split("\n")):
        if (ROOT / name).exists():
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)  # with its age, which make looks at
    (Path(folder) / ".venv").symlink_to(ROOT / ".venv")
    return Path(folder)


def run(root, tests):
    """Run tests in a copy; return (passed, failed or timed out; what pytest printed)."""
    words = f"{sys.executable} -m pytest -x -q -p no:cacheprovider tests/{tests}"
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "SLOW": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    shell = subprocess.Popen(
        ["sh", "-c", words],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        return TIMED_OUT, f"more than {SECONDS} s"
    if shell.returncode > 1:
        sys.exit(f"tests/{tests} cannot run:\n{printed[-3000:]}")
    return (FAILED if shell.returncode else PASSED), printed


def chosen(files):
    """Return (file, text, text in its place, what, tests) of each edit in `files`.

    A file counts where it begins with one of the words; without a word, all do. Ends the
    program where a text is not there, or not once.
    """
    found = []
    for name, edits in MUTANTS.items():
        if files and not name.startswith(files):
            continue
        for old, new, what, tests in edits:
            times = (ROOT / name).read_text().count(old)
            if times != 1 or old == new:
                sys.exit(f"{name} has {old!r} {times} times: mend tests/mutants.py")
            found.append((name, old, new, what, tests))
    return found


def in_a_copy(copies, tests, name=None, old="", new=""):
    """Run tests in a copy that is free, with an edit; return what `run` does."""
    root = copies.get()
    original = (root / name).read_text() if name else ""
    if name:
        (root / name).write_text(original.replace(old, new))
    try:
        return run(root, tests)
    finally:
        if name:
            (root / name).write_text(original)
        copies.put(root)


def check_tests(pool, copies, tests):
    """End the program where tests do not pass without any edit; say which have."""
    runs = [pool.submit(in_a_copy, copies, one) for one in tests]
    for one, started in zip(tests, runs, strict=True):
        verdict, printed = started.result()
        if verdict != PASSED:
            for other in runs:
                other.cancel()
            sys.exit(f"without any edit, tests/{one} {verdict}:\n{printed[-3000:]}")
        print(f"{'passed':9} tests/{one}", flush=True)


def try_edits(pool, copies, edits):
    """Return a line for each edit that no test has noticed; print one for every edit."""
    runs = []
    for name, old, new, _, tests in edits:
        runs.append(pool.submit(in_a_copy, copies, tests, name, old, new))
    missed = []
    for (name, _, _, what, tests), started in zip(edits, runs, strict=True):
        verdict, _ = started.result()
        print(f"{WORDS[verdict]:9} {name}: {what}", flush=True)
        if verdict != FAILED:
            missed.append(f"{WORDS[verdict]:9} {name}: {what} (tests/{tests})")
    return missed


def main():
    edits = chosen(tuple(sys.argv[1:]))
    copies = Queue()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        copies.put(copy(one))
        copies.put(copy(two))
        with ThreadPoolExecutor(2) as pool:
            check_tests(pool, copies, sorted({edit[-1] for edit in edits}))
            missed = try_edits(pool, copies, edits)
    print(f"{len(edits) - len(missed)} of {len(edits)} mutants were caught")
    if missed:
        sys.exit("\n".join(["these were not:", *missed]))


if __name__ == "__main__":
    main()
