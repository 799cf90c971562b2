"""Record what FSDP shards, and saved shards."""

from onecurve.set_up.replace import replace
from onecurve.watch.events import local_part, tensors_in


class FSDP:
    """Writes `shard` and `saved_part`."""

    def __init__(self, script):
        self.script = script
        self.log = script.log
        self.parts = []  # parameters

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
