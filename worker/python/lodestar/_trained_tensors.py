# SPDX-License-Identifier: Apache-2.0
"""The tensors of a model that travel, and where each lies in the vectors of a worker."""
from __future__ import annotations

import hashlib
import warnings
from typing import Any, Callable, Dict, Iterable, List, Optional

import torch
from torch.nn.parameter import is_lazy
from torch.utils.dlpack import from_dlpack

from lodestar._library import LodestarError, library
from lodestar._optimizer_settings import first_rate, settings_by_parameter
from lodestar._tensor_names import TensorNames
from lodestar.worker_api import Worker

# Tensors that follow each other travel together from this size on.
_BLOCK_ELEMENTS = 1 << 20
# Servers refuse larger ones; and from there on f32 has not every integer, with room to count.
_LARGEST_VALUE = 1e18
_LARGEST_COUNTER = 1 << 23
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Integers that have the bits of an element of so many bytes.
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
# Elements that sum_of_bits() widens at a time.
_SUMMED_ELEMENTS = 1 << 22


def sum_of_bits(values: Any) -> Any:
    """Returns a tensor of one integer, on the device of `values`, that tells their bits and order
    apart as a checksum does: each element counts times an odd number of its own, modulo 2^64."""
    bits = values.flatten().view(_INTEGERS[values.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    for begin in range(0, bits.numel(), _SUMMED_ELEMENTS):
        part = bits[begin:begin + _SUMMED_ELEMENTS].long()
        places = torch.arange(begin, begin + part.numel(), device=values.device)
        total += (part * (2 * places + 1)).sum()
    return total


def checksum(values: Any) -> Any:
    """Returns an integer on the CPU. On other devices it returns a tensor, so that nothing has to
    wait for the device before two of them are compared."""
    if values.device.type != "cpu":
        return sum_of_bits(values)
    values = values.contiguous()
    return library().crc32c(values.data_ptr(), values.numel() * values.element_size())


class TrainedTensor:
    """A parameter that an optimizer changes.

    Attributes:
      settings: of the optimizer for it, when it was attached.
      weights, gradient: its parts of the worker's vectors, in its shape; once they are there.
      block: that its gradient leaves with.
      is_sparse: whether its gradient is sparse, as a module has it (sparse=True).
    """

    def __init__(self, name: str, parameter: Any, settings: Dict[str, str]) -> None:
        self.name = name
        self.parameter = parameter
        self.settings = settings
        self.block = 0
        self.is_sparse = False
        self.weights: Any = None
        self.gradient: Any = None
        self._begin = 0  # in the vectors
        self._checksum: Any = None  # of the parameter, when remember() was called

    def here(self, values: Any) -> Any:
        """Returns what this process has of the parameter, or of its gradient."""
        return values

    def place(self, worker: Worker, weights: Any, gradients: Any) -> None:
        self._begin = worker.offset(self.name)
        self.weights = self.part_of(weights)
        self.gradient = self.part_of(gradients)
        self.block = worker.block(self.name)

    def part_of(self, vector: Any) -> Any:
        """Returns the elements of the parameter in a vector of all elements, in its shape."""
        own = self.here(self.parameter)
        return vector[self._begin:self._begin + own.numel()].view(own.shape)

    def move_into_vector(self) -> None:
        """Moves the parameter into the vector, so that nothing has to be copied. Only f32 on the
        CPU can be there. The parameter has a storage of its own, of these bytes of the vector
        alone: libraries that save models tell tensors apart by their storages, and write whole
        ones."""
        parameter = self.parameter
        if parameter.device.type == "cpu" and parameter.dtype == self.weights.dtype:
            parameter.data = from_dlpack(self.weights)

    @property
    def lives_in_vector(self) -> bool:
        return self.parameter.data_ptr() == self.weights.data_ptr()

    def remember(self) -> None:
        """Keeps what has_changed() compares with."""
        self._checksum = checksum(self.here(self.parameter.detach()))

    def has_changed(self) -> bool:
        """Returns whether the parameter has other bits than with remember(). Version counters
        miss what is changed through `.data` or NumPy."""
        return bool(checksum(self.here(self.parameter.detach())) != self._checksum)


class _Buffer:
    """Holds what a model keeps beside its parameters: the mean over the workers counts. Counters
    travel, too, and are rounded."""

    def __init__(self, name: str, module: Any, key: str) -> None:
        self.name = name
        self._module, self._key = module, key
        self._value: Any = None  # in the worker's vector
        self.shape = list(self._now().shape)

    def _now(self) -> Any:
        """Modules replace their buffers: it is looked up each time."""
        return getattr(self._module, self._key, None)

    def place(self, worker: Worker, weights: Any) -> None:
        begin = worker.offset(self.name)
        self._value = weights[begin:begin + self._now().numel()].view(self.shape)

    def take(self) -> None:
        buffer = self._now()
        buffer.copy_(self._value if buffer.is_floating_point() else self._value.round())

    def hand_over(self) -> None:
        buffer = self._now()
        shape = list(buffer.shape) if isinstance(buffer, torch.Tensor) else None
        if shape != self.shape:
            raise LodestarError(
                "FAILED_PRECONDITION",
                f"buffer {self.name} had the shape {self.shape} at attach() and "
                f"{'is gone' if shape is None else f'has {shape}'} by now. Keep its shape, or "
                "register it with persistent=False, so that it stays in this program")
        self._value.copy_(buffer)


def _travels(buffer: Any) -> bool:
    """Returns whether the mean of a buffer makes sense, in f32. Constants such as masks and tables
    stay as they are."""
    if buffer.numel() == 0 or buffer.is_complex() or buffer.dtype in (torch.float64, torch.bool):
        return False
    if buffer.is_meta or buffer.layout != torch.strided:
        return False
    if buffer.is_floating_point():
        return bool((buffer.abs() < _LARGEST_VALUE).all())  # not of NaN
    return buffer.numel() == 1 and abs(int(buffer)) <= _LARGEST_COUNTER


def _check_travels(name: str, parameter: Any) -> None:
    """Raises LodestarError INVALID_ARGUMENT for a parameter that has no values that can be sent."""
    if is_lazy(parameter):
        raise LodestarError(
            "INVALID_ARGUMENT", f"parameter {name} has no shape yet. Call the model with one batch "
                                "before its optimizer is made and attach() is called")
    if parameter.is_meta:
        raise LodestarError(
            "INVALID_ARGUMENT", f"parameter {name} is on the device meta, so it has no values. "
                                "Call model.to_empty(device=...), and load or initialize the "
                                "weights, before the optimizer is made and attach() is called")
    if parameter.dtype not in _DTYPES:
        raise LodestarError(
            "INVALID_ARGUMENT", f"parameter {name} is {parameter.dtype}, which cannot be "
                                "exchanged. Make it f32, bf16, f16 or f64, or freeze it "
                                "(requires_grad=False)")


class TrainedTensors:
    """Holds the tensors of one model, in its order, which is about that of forward. Tied ones are
    there once."""

    def __init__(self, worker: Worker, model: Any, optimizer: Any) -> None:
        """Raises LodestarError INVALID_ARGUMENT without a parameter to train, or for one of the
        optimizer that is not the model's."""
        self._model = model
        self._names = TensorNames(model)
        of_model = {id(parameter) for parameter in model.parameters()}
        decays: Dict[int, bool] = {}  # by the parameters that the optimizer has
        rates: Dict[int, float] = {}  # that they begin with; those of a block are equal
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in of_model:
                    raise LodestarError(
                        "INVALID_ARGUMENT", "the optimizer has a parameter of shape "
                                            f"{list(parameter.shape)} that the model does not "
                                            "have. Call attach() with a module that has all "
                                            "parameters of the optimizer")
                rates[id(parameter)] = first_rate(group)
                decays[id(parameter)] = group.get("weight_decay", 0.0) != 0.0
        settings = settings_by_parameter(optimizer)
        self.trained: List[TrainedTensor] = []
        # Parameters without an element, which nothing can change.
        self._empty = {id(parameter) for parameter in model.parameters()
                       if not is_lazy(parameter) and parameter.numel() == 0}
        tables = {id(module.weight): module.sparse for module in model.modules()
                  if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag))}
        block, elements = 0, 0
        rate: Optional[float] = None  # of the block
        for name, parameter in model.named_parameters():
            if (not parameter.requires_grad or id(parameter) not in decays
                    or id(parameter) in self._empty):
                continue
            _check_travels(name, parameter)
            if elements >= _BLOCK_ELEMENTS or rate not in (None, rates[id(parameter)]):
                block, elements = block + 1, 0
            rate = rates[id(parameter)]
            elements += parameter.numel()
            self.trained.append(
                self._make(self._names(name), parameter, settings[id(parameter)]))
            self.trained[-1].is_sparse = tables.get(id(parameter), False)
            add = worker.add_embedding if id(parameter) in tables else worker.add_tensor
            add(self.trained[-1].name, list(parameter.shape), block, decays[id(parameter)])
        if not self.trained:
            raise LodestarError(
                "INVALID_ARGUMENT",
                f"the optimizer has {len(decays)} parameters, and none of them has elements and "
                "requires_grad=True, so there is nothing to train. Make it of model.parameters()")
        self._warn_of_doubles()
        self._warn_of_others(decays)
        self._buffers = self._find_buffers(model)
        for averaged in self._buffers:
            worker.add_averaged(averaged.name, averaged.shape, block + 1)

    def _warn_of_doubles(self) -> None:
        """Warns of f64 parameters."""
        double = next((tensor.name for tensor in self.trained
                       if tensor.parameter.dtype == torch.float64), None)
        if double is not None:
            warnings.warn(f"some parameters are float64, such as {double}, but weights and gradients "
                          "are sent as float32. If float32 is enough, call model.float()")

    def _warn_of_others(self, optimized: Iterable[int]) -> None:
        """Warns of parameters that another optimizer may train: no other worker hears of them."""
        others = [self._names(name) for name, parameter in self._model.named_parameters()
                  if parameter.requires_grad and id(parameter) not in optimized
                  and id(parameter) not in self._empty]
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            warnings.warn(
                f"parameters that need a gradient are not in the optimizer: {others[0]}{more}. "
                "These are not exchanged between workers. Give attach() all optimizers, as a "
                "list, or freeze these (requires_grad=False)")

    @property
    def is_distributed_data_parallel(self) -> bool:
        """Returns whether the model is a DistributedDataParallel, or has one in it."""
        return any(isinstance(module, torch.nn.parallel.DistributedDataParallel)
                   for module in self._model.modules())

    def _make(self, name: str, parameter: Any, settings: Dict[str, str]) -> TrainedTensor:
        if hasattr(parameter, "device_mesh"):
            raise LodestarError(
                "INVALID_ARGUMENT", f"parameter {name} is divided among several processes "
                                    "(DTensor), which must be one worker. Call lodestar.join(..., "
                                    "group=torch.distributed.group.WORLD) in all of them")
        return TrainedTensor(name, parameter, settings)

    def _find_buffers(self, model: Any) -> List[_Buffer]:
        """Returns the buffers that are saved with the model."""
        saved = model.state_dict(keep_vars=True)
        modules = dict(model.named_modules())
        found = []
        for name, buffer in model.named_buffers():
            if name in saved and _travels(buffer):
                path, _, key = name.rpartition(".")
                found.append(_Buffer(self._names(name), modules[path], key))
        return found

    def frozen_hash(self) -> str:
        """Returns a text that tells frozen parameters apart by names, shapes and bytes. It is empty
        if there are none, or if the bytes of one cannot be read here."""
        travelling = {id(tensor.parameter) for tensor in self.trained}
        frozen = []
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad or id(parameter) in travelling:
                continue
            values = parameter.data
            if type(values) is not torch.Tensor or values.is_meta or values.is_sparse:
                return ""
            frozen.append((self._names(name), list(values.shape), str(values.dtype),
                           checksum(values.cpu())))
        text = repr(sorted(frozen))
        return hashlib.sha256(text.encode()).hexdigest()[:16] if frozen else ""

    @property
    def have_gradient(self) -> bool:
        """Returns whether at least one of them has a gradient at hand."""
        return any(tensor.parameter.grad is not None for tensor in self.trained)

    def check_unchanged(self, optimizer: Any) -> None:
        """Raises LodestarError FAILED_PRECONDITION if the optimizer trains others by now."""
        known = self._empty.union(id(tensor.parameter) for tensor in self.trained)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and id(parameter) not in known:
                    name = next((self._names(name) for name, own in self._model.named_parameters()
                                 if own is parameter), f"a parameter {list(parameter.shape)}")
                    raise LodestarError(
                        "FAILED_PRECONDITION",
                        f"the optimizer trains {name}, which was frozen or not in the optimizer at "
                        f"attach(). A job keeps the same parameters until its end. Train {name} "
                        "from the beginning, or start a new job with ps_server --init_from")

    @torch.no_grad()
    def place(self, worker: Worker, *, in_vector: bool) -> None:
        """Places the tensors once the worker's vectors are there, which then have what the tensors
        had.

        Args:
          in_vector: parameters may live in the vector of weights.
        """
        present = {id(parameter) for parameter in self._model.parameters()}
        weights = torch.frombuffer(worker.parameters, dtype=torch.float32)
        gradients = torch.frombuffer(worker.gradients, dtype=torch.float32)
        for tensor in self.trained:
            if id(tensor.parameter) not in present:
                raise LodestarError(
                    "FAILED_PRECONDITION",
                    f"{tensor.name} is now another Parameter object than at attach(). Load weights "
                    "with assign=False, or before attach()")
            tensor.place(worker, weights, gradients)
            tensor.weights.copy_(tensor.here(tensor.parameter))
            if in_vector:
                tensor.move_into_vector()
        for buffer in self._buffers:
            buffer.place(worker, weights)
        self.hand_over_buffers()

    @torch.no_grad()
    def take_weights(self) -> None:
        """Takes the weights from the worker's vector. Autograd hears of the change, so that
        backward through a graph of the weights before raises as after a step of plain PyTorch."""
        for tensor in self.trained:
            if tensor.lives_in_vector:
                torch.autograd.graph.increment_version(tensor.parameter)
            else:
                tensor.here(tensor.parameter).copy_(tensor.weights)

    def remember_weights(self) -> None:
        """Keeps what first_changed() compares with."""
        for tensor in self.trained:
            tensor.remember()

    def first_changed(self) -> Optional[TrainedTensor]:
        """Returns the first tensor that has changed since remember_weights()."""
        return next((tensor for tensor in self.trained if tensor.has_changed()), None)

    @torch.no_grad()
    def take_buffers(self) -> None:
        for buffer in self._buffers:
            buffer.take()

    @torch.no_grad()
    def hand_over_buffers(self) -> None:
        """Copies the buffers into the worker's vector."""
        for buffer in self._buffers:
            buffer.hand_over()

    def on_each_gradient(self, function: Callable[[TrainedTensor], None]) -> List[Any]:
        """Calls it as backward reports them; returns what removes these hooks."""
        return [
            tensor.parameter.register_post_accumulate_grad_hook(
                lambda _, tensor=tensor: function(tensor)) for tensor in self.trained
        ]
