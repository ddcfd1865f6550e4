"""LightGBM's socket version. Without LGBM_MACHINES in the environment it trains alone."""

import os
import socket

import digits
import lightgbm
import numpy as np
from tensorboardX import SummaryWriter

options = digits.options(epochs=15)  # rounds of boosting
rank = int(os.environ.get("LGBM_RANK", 0))
world = int(os.environ.get("LGBM_NUM_MACHINES", 1))
(x_train, y_train), (x_test, y_test) = digits.load()
parameters = {
    "objective": "multiclass",
    "num_class": 10,
    "num_leaves": 15,
    "learning_rate": 0.2,
    "num_threads": 1,
    "verbose": -1,
}
if world > 1:
    # LightGBM finds itself in the list by its address: names must be resolved.
    machines = [entry.rpartition(":") for entry in os.environ["LGBM_MACHINES"].split(",")]
    parameters |= {
        "tree_learner": "data",
        "pre_partition": True,
        "machines": ",".join(f"{socket.gethostbyname(host)}:{port}" for host, _, port in machines),
        "num_machines": world,
        "local_listen_port": int(os.environ["LGBM_LOCAL_LISTEN_PORT"]),
    }

mine = range(rank, len(x_train), world)
train = lightgbm.Dataset(x_train[mine], y_train[mine], params=parameters, free_raw_data=False)
model, done = None, 0
if path := digits.newest("step-*.txt"):
    model = lightgbm.Booster(model_file=str(path))
    done = model.current_iteration()
    digits.resumed(path, done)


def scores(model):
    chances = model.predict(x_test)
    loss = -np.log(chances[np.arange(len(y_test)), y_test]).mean()
    return float(loss), float((chances.argmax(1) == y_test).mean())


def each_round(state):
    """Save, tell, and show each round."""
    step = state.iteration + 1
    if rank == 0:
        digits.save(f"step-{step:06d}.txt", lambda path: state.model.save_model(str(path)))
    loss, accuracy = scores(state.model)
    writer.add_scalar("loss", loss, step)
    writer.add_scalar("accuracy", accuracy, step)
    writer.flush()
    digits.stepped(step, loss, accuracy, options.sleep)


writer = SummaryWriter(digits.summaries())
if done < options.epochs:
    model = lightgbm.train(
        parameters,
        train,
        num_boost_round=options.epochs - done,
        init_model=model,
        callbacks=[each_round],
    )
# The model's text ends with its parameters, of which each rank has its own.
trees = model.model_to_string().partition("\nparameters:")[0]
digits.finished(scores(model)[1], [trees.encode()])
digits.saw(rank, world, mine)
