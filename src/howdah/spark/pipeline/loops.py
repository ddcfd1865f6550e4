"""Training functions that are ready: for those who have a model and a loss, and no loop of their own.

    Estimator(torch_training(make_network, torch.nn.functional.cross_entropy), featuresCol="features",
              labelCol="label", predictionCol="scores", workers=4, epochs=3)

They take ``features_col``, ``label_col``, ``weight_col``, ``validation_col`` or ``validation_fraction``,
``batch_size``, ``epochs``, ``seed``, ``shapes`` and ``export_dir`` of the stage, and report ``loss`` and
``val_loss`` after each epoch.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from howdah.spark.pipeline.params import FEATURES, LABEL, WEIGHT
from howdah.spark.scoring.columns import as_type, plain
from howdah.spark.scoring.predictors import Make

_NOTHING = 1e-12
"""Below any weight of a batch that counts."""
_NULLS = (
    "the column {!r} has nulls or NaN, which cannot be trained: fill them (df.fillna, or an Imputer of "
    "pyspark.ml) or drop them (df.dropna)"
)
_NOT_TAKEN = ("checkpoint", "resume", "model_dir")


def torch_training(
    network: Callable[[], Any],
    loss: Callable[[Any, Any], Any],
    optimizer: Callable[[Any], Any] | None = None,
) -> Callable[[Any, Any], Any]:
    """A function that trains a PyTorch module, with DistributedDataParallel among several workers.

    Args:
        network: makes the module, which is called with float32 of shape ``(rows, …)``.
        loss: ``loss(output, label)``: a number, or one for each row, which ``weight_col`` needs. Labels
            that are not integers are float32.
        optimizer: makes it of the parameters; Adam without.

    The model answers what the module does, an output of shape ``(rows, 1)`` as ``(rows,)``. With ``export_dir``
    it is saved there as TorchScript.
    """

    def torch_loop(args: Any, ctx: Any) -> Any:
        _refuse(args, "torch_training", (*_NOT_TAKEN, "callbacks"))
        import torch  # noqa: F401  # what it imports says what its processes are to be told

        return _train_torch(network, loss, optimizer, args, ctx)

    return torch_loop


def keras_training(model: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    """A function that trains a Keras model, with MultiWorkerMirroredStrategy among several workers.

    Args:
        model: makes and compiles it, beginning with an ``Input``, with ``tf.keras``: ``fit`` of Keras 3
            fails under that strategy, so among several workers ``tf.keras`` is Keras 2 (tf-keras must be
            installed).

    ``callbacks`` of the stage are Keras's. The model answers what Keras's does, an output of
    shape ``(rows, 1)`` as ``(rows,)``. With ``export_dir`` it is saved there as a SavedModel.
    """

    def keras_loop(args: Any, ctx: Any) -> Any:
        _refuse(args, "keras_training", _NOT_TAKEN)
        if ctx.num_workers > 1:
            os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import tensorflow  # noqa: F401  # what it imports says what its processes are to be told

        return _train_keras(model, args, ctx)

    return keras_loop


def _train_torch(
    make: Callable[[], Any],
    loss: Callable[[Any, Any], Any],
    optimizer: Callable[[Any], Any] | None,
    args: Any,
    ctx: Any,
) -> Any:
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)
    network = make().to(device)
    parallel = network
    if ctx.world_size > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        parallel = torch.nn.parallel.DistributedDataParallel(network)
    steps = (optimizer or torch.optim.Adam)(network.parameters())
    flat = False

    def sums(of: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        """Losses of the rows together, and the rows' weight."""
        found = {
            name: torch.as_tensor(_whole(value, name), device=device)
            for name, value in batch.items()
        }
        label = found[LABEL] if not found[LABEL].is_floating_point() else found[LABEL].float()
        output = of(found[FEATURES].float())
        if output.ndim == label.ndim + 1 and output.shape[-1] == 1:
            nonlocal flat
            flat, output = True, output.squeeze(-1)
        value = loss(output, label)
        if WEIGHT not in found:
            return value.mean() * len(label), torch.tensor(float(len(label)), device=device)
        if value.shape != label.shape[:1]:
            raise ValueError(
                "weight_col needs a loss for each row, and loss gave one of shape "
                f'{tuple(value.shape)}; give it reduction="none"'
            )
        weight = found[WEIGHT].float()
        return (value * weight).sum(), weight.sum()

    def mean(total: Any) -> float:
        if ctx.world_size > 1:
            torch.distributed.all_reduce(total)
        return float(total[0] / total[1].clamp(min=_NOTHING))

    held_back = args.validation_col or args.validation_fraction
    validation = iter(ctx.feed("validation")) if held_back else None
    for number, epoch in enumerate(ctx.feed(), 1):
        seen = torch.zeros(2, device=device)
        network.train()
        for batch in epoch.batches(args.batch_size, shapes=_shapes(args)):
            total, weight = sums(parallel, batch)
            steps.zero_grad()
            (total / weight.clamp(min=_NOTHING)).backward()  # of a batch of weight 0: no step
            steps.step()
            seen += torch.stack([total.detach(), weight])
        values = {"loss": mean(seen)}
        if validation is not None:
            seen = torch.zeros(2, device=device)
            network.eval()
            with torch.no_grad():
                for batch in next(validation).batches(args.batch_size, shapes=_shapes(args)):
                    seen += torch.stack(sums(network, batch))
            values["val_loss"] = mean(seen)
        ctx.report(step=number, **values)
    if ctx.world_size > 1:
        torch.distributed.destroy_process_group()
    if ctx.rank != 0:
        return None
    network.cpu().eval()
    if args.export_dir:
        torch.jit.script(_torch_answering(network, flat)).save(args.export_dir)
        return None
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    return Make(make=functools.partial(_torch_answers, make, state, flat))


def _torch_answering(network: Any, flat: bool) -> Any:
    """The module, which answers ``(rows,)`` where ``flat`` says that its output is ``(rows, 1)``."""
    import torch

    return torch.nn.Sequential(network, torch.nn.Flatten(0)) if flat else network


def _torch_answers(
    make: Callable[[], Any], state: dict[str, Any], flat: bool
) -> Callable[[dict[str, Any]], Any]:
    import torch

    network = make()
    network.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    answering = _torch_answering(network.eval(), flat)

    def answers(batch: dict[str, Any]) -> Any:
        with torch.no_grad():
            return answering(torch.from_numpy(_features(batch, np.dtype(np.float32)))).numpy()

    return answers


def _train_keras(make: Callable[[], Any], args: Any, ctx: Any) -> Any:
    import tensorflow as tf

    several = ctx.num_workers > 1
    tf.keras.utils.set_random_seed(args.seed)
    strategy = (
        tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.get_strategy()
    )
    options = tf.data.Options()
    # Each worker's rows are its own share already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF

    def rows(name: str) -> Any:
        fed = [FEATURES, LABEL, *([WEIGHT] if args.weight_col else [])]
        data = ctx.feed(name).tf_dataset(
            args.batch_size, columns=fed, shapes=_shapes(args), drop_last=several
        )

        def columns(batch: dict[str, Any]) -> tuple[Any, ...]:
            for each in fed:
                if batch[each].dtype.is_floating:
                    missing = tf.reduce_any(tf.math.is_nan(batch[each]))
                    tf.debugging.assert_equal(missing, False, _NULLS.format(each))
            return tuple(batch[each] for each in fed)

        return data.map(columns).with_options(options)

    with strategy.scope():
        model = make()
    if not model.built:
        raise ValueError(
            "the Keras model does not know the shape of its input: begin it with tf.keras.layers.Input"
        )
    held_back = args.validation_col or args.validation_fraction
    history = model.fit(
        rows("train"),
        epochs=args.epochs,
        validation_data=rows("validation") if held_back else None,
        callbacks=args.callbacks,
        verbose=0,
    ).history
    for number in range(len(history["loss"])):
        ctx.report(step=number + 1, **{name: float(of[number]) for name, of in history.items()})
    weights = model.get_weights()
    if ctx.rank != 0:
        return None
    if args.export_dir:
        # Of a model outside of the strategy, under which all workers would have to save at once.
        alone = make()
        alone.set_weights(weights)
        alone = _keras_answering(alone)
        (alone.export if hasattr(alone, "export") else alone.save)(args.export_dir)
        return None
    return Make(make=functools.partial(_keras_answers, make, weights, several))


def _keras_answering(model: Any) -> Any:
    """The model, which answers ``(rows,)`` where its output is ``(rows, 1)``."""
    import tensorflow as tf

    if model.output_shape[1:] != (1,):
        return model
    given = tf.keras.layers.Input(model.input_shape[1:])
    return tf.keras.Model(given, tf.keras.layers.Reshape(())(model(given)))


def _keras_answers(
    make: Callable[[], Any], weights: list[Any], legacy: bool
) -> Callable[[dict[str, Any]], Any]:
    if legacy:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    model = make()
    model.set_weights(weights)
    answering = _keras_answering(model)
    import tensorflow as tf

    dtype = np.dtype(tf.as_dtype(answering.inputs[0].dtype).as_numpy_dtype)
    return lambda batch: answering(_features(batch, dtype), training=False).numpy()


def _whole(values: Any, name: str) -> np.ndarray:
    """A column that is trained, as a tensor's memory.

    Raises:
        ValueError: it has nulls, which a mask or NaN stands for, or its rows differ in length.
    """
    if np.ma.isMaskedArray(values) or (values.dtype.kind == "f" and np.isnan(values).any()):
        raise ValueError(_NULLS.format(name))
    if values.dtype == object:
        if any(value is None for value in values):
            raise ValueError(_NULLS.format(name))
        raise ValueError(
            f"the column {name!r} is text, or its rows differ in length: make numbers of it, as many in "
            "each row"
        )
    return np.require(values, requirements=["C", "W"])  # received memory is not to be written to


def _features(batch: dict[str, Any], dtype: np.dtype) -> np.ndarray:
    """What the model answers; missing numbers are NaN, or refused where it takes whole ones."""
    values = as_type(plain(batch[FEATURES], FEATURES), dtype, FEATURES)
    return np.require(values, requirements=["C", "W"])


def _refuse(args: Any, training: str, names: tuple[str, ...]) -> None:
    """Refuse parameters that such a loop would ignore."""
    if given := [name for name in names if getattr(args, name)]:
        raise ValueError(
            f"{training} takes no {' and no '.join(given)}: leave it out, or write a training function"
        )


def _shapes(args: Any) -> dict[str, tuple[int, ...]] | None:
    return {name: tuple(shape) for name, shape in args.shapes.items()} or None
