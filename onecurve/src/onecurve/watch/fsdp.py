"""Record what FSDP shards: saved shards, and their scaling."""

from onecurve.set_up.replace import replace
from onecurve.watch.events import local_part, tensors_in

ROUGH = 1e-3  # of a factor: shards may be in bfloat16


class FSDP:
    """Writes `shard`, `parts_scaled`, `saved_part` and similar events."""

    def __init__(self, script):
        self.script = script
        self.log = script.log
        self.parts = []  # parameters
        self.norms = {}  # id of a parameter -> norm of its gradient's shard

    def install(self):
        replace("torch.distributed.fsdp:fully_shard", self.shard)
        replace("torch:save", self.save)

    def shard(self, original, module, *args, **options):
        self.log.write("shard")
        if options.get("ignored_params"):
            self.script.ignored_at = self.log.line()
        result = original(module, *args, **options)
        for one in module if isinstance(module, list | tuple) else [module]:
            self.parts += one.parameters()
        return result

    def backward_ends(self, loss):
        """After a backward pass: remember the norms of this rank's gradient shards."""
        self.norms = {}
        for network in self.script.networks:
            for one in network.parameters():
                if hasattr(one.grad, "placements"):
                    self.norms[id(one)] = float(local_part(one.grad).norm())

    def step_begins(self, optimizer):
        """Before a step: record the factor by which this rank scaled its shards."""
        if not self.norms:
            return
        parameters = self.script.parameters(optimizer).values()
        known = [one for one in parameters if self.norms.get(id(one))]
        norms = [(one.grad, self.norms[id(one)]) for one in known]
        factors = [float(local_part(a).norm()) / b for a, b in norms if a is not None]
        alike = factors and max(factors) - min(factors) < ROUGH * max(factors)
        factor = max(factors) if alike else None
        self.log.write("parts_scaled", line=self.log.line(), factor=factor)

    def save(self, original, obj, *args, **options):
        places = self.places()
        for one in tensors_in(obj):
            is_sharded = any(part.is_shard() for part in getattr(one, "placements", []))
            if is_sharded or one.untyped_storage().data_ptr() in places:
                self.log.write("saved_part", line=self.log.line())
                break
        return original(obj, *args, **options)

    def places(self):
        """Return the addresses of this rank's parameter shards."""
        parameters = [*self.parts]
        for network in self.script.networks:
            parameters += network.parameters()
        places = set()
        for parameter in parameters:
            own = local_part(parameter)
            if own.numel() < parameter.numel():
                places.add(own.untyped_storage().data_ptr())
        return places - {0}  # an empty shard's
