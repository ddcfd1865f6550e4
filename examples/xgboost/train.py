"""Boosted trees over XGBoost's collective. Without a tracker in the environment it trains alone."""

import contextlib
import os

import digits
import xgboost
from tensorboardX import SummaryWriter
from xgboost import collective

options = digits.options(epochs=20)  # rounds of boosting
if "DMLC_TRACKER_URI" in os.environ:
    group = collective.CommunicatorContext(
        dmlc_communicator="rabit",
        dmlc_tracker_uri=os.environ["DMLC_TRACKER_URI"],
        dmlc_tracker_port=int(os.environ["DMLC_TRACKER_PORT"]),
        dmlc_task_id=os.environ["DMLC_TASK_ID"],
    )
else:
    group = contextlib.nullcontext()
(x_train, y_train), (x_test, y_test) = digits.load()
parameters = {
    "objective": "multi:softprob",
    "num_class": 10,
    "eval_metric": "mlogloss",
    "max_depth": 4,
    "eta": 0.4,
    "nthread": 1,
}


def accuracy(model):
    return float((model.predict(test).argmax(1) == y_test).mean())


class EachRound(xgboost.callback.TrainingCallback):
    """Save, tell, and show each round."""

    def after_iteration(self, model, epoch, evals_log):
        step = model.num_boosted_rounds()
        loss = evals_log["test"]["mlogloss"][-1]
        if rank == 0:
            digits.save(
                f"step-{step:06d}.ubj", lambda path: path.write_bytes(model.save_raw("ubj"))
            )
        score = accuracy(model)
        writer.add_scalar("loss", loss, step)
        writer.add_scalar("accuracy", score, step)
        writer.flush()
        digits.stepped(step, loss, score, options.sleep)
        return False


with group:
    rank, world = collective.get_rank(), collective.get_world_size()
    mine = range(rank, len(x_train), world)
    train = xgboost.DMatrix(x_train[mine], y_train[mine])
    test = xgboost.DMatrix(x_test, y_test)

    # Rank 0's checkpoint is everybody's: no two ranks can go on from different rounds.
    saved = b""
    if rank == 0 and (path := digits.newest("step-*.ubj")):
        saved = path.read_bytes()
        digits.resumed(path, int(path.stem.split("-")[1]))
    saved = collective.broadcast(saved, 0)
    model = xgboost.Booster(model_file=bytearray(saved)) if saved else None
    done = 0 if model is None else model.num_boosted_rounds()

    writer = SummaryWriter(digits.summaries())
    if done < options.epochs:
        model = xgboost.train(
            parameters,
            train,
            options.epochs - done,
            evals=[(test, "test")],
            verbose_eval=False,
            callbacks=[EachRound()],
            xgb_model=model,
        )
    digits.finished(accuracy(model), [bytes(model.save_raw("ubj"))])
    digits.saw(rank, world, mine)
