"""Add up the gradients that a rank computes, before they are exchanged."""

from functools import partial

from onecurve.watch.identities import own_number


class OwnGradients:
    """Adds up the gradients that backward passes compute on this rank alone.

    A sum restarts if the parameter's gradient is None or zero. A step's first sum
    includes what earlier steps left.
    """

    def __init__(self):
        self.sums = {}  # number of a parameter -> sum of its gradients
        self.begun = set()  # numbers that have a sum since the latest step
        self.watched = {}  # number -> parameter
        self.asked = False  # whether torch.autograd.grad is running

    def watch(self, parameters):
        """Hook parameters, except FSDP's, which are shards."""
        for one in parameters:
            key = own_number(one)
            known = key in self.watched or hasattr(one, "placements")
            if one.requires_grad and one.is_leaf and not known:
                self.watched[key] = one
                one.register_hook(partial(self.add, one))

    def gradients(self):
        """Return the gradients that watched parameters have."""
        return [one.grad for one in self.watched.values() if one.grad is not None]

    def marks(self):
        """Return what tells that a gradient changed; x.data has no version."""
        held = self.gradients()
        first = [one.flatten()[:1].tolist() for one in held[:1] if not one.is_sparse]
        return [(id(one), one._version) for one in held] + first

    def is_of_gradients(self, tensor):
        """Return whether a tensor is a gradient, or as long as all of them."""
        gradients = self.gradients()
        is_one = any(tensor is one for one in gradients)
        return is_one or tensor.numel() == sum(one.numel() for one in gradients)

    def grad(self, original, *args, **options):
        """Wrap torch.autograd.grad, whose gradients aren't added up."""
        self.asked = True
        try:
            return original(*args, **options)
        finally:
            self.asked = False

    def add(self, parameter, gradient):
        """Add a gradient that a backward pass computed."""
        if self.asked or gradient is None:
            return
        key = own_number(parameter)
        before = parameter.grad
        computed = gradient.detach().to_dense()
        if before is None or not before.any():
            self.sums[key] = computed.clone()
        elif key in self.begun:
            self.sums[key] += computed
        else:
            self.sums[key] = before.to_dense() + computed
        self.begun.add(key)

    def step_begins(self, parameters):
        """Begin new sums for the parameters of an optimizer."""
        self.begun -= {own_number(one) for one in parameters}
