"""Training of stacked ensembles: trials, the loop, checkpoints."""

from unseam.training.adagrad import AdaGrad
from unseam.training.adam import Adam
from unseam.training.checkpoint import load, save
from unseam.training.ensemble import Ensemble
from unseam.training.learner import Learner, learner
from unseam.training.loop import Record, training_index, training_steps
from unseam.training.provenance import provenance
from unseam.training.run import Callback, DivergenceWarning, Interrupted, train
from unseam.training.sgd import Sgd
from unseam.training.splits import Split, split_items
from unseam.training.stack import Stack, group, stack_trials
from unseam.training.step import make_step, precision, update
from unseam.training.stopping import EarlyStopping
from unseam.training.streams import minibatches, normals, uniforms
from unseam.training.trackers import Tracker, Tracking, TrackingWarning, open_tracker
from unseam.trial import Trial

__all__ = [
    "Callback",
    "DivergenceWarning",
    "EarlyStopping",
    "Ensemble",
    "Interrupted",
    "Learner",
    "Record",
    "Split",
    "Stack",
    "Trial",
    "Tracker",
    "Tracking",
    "TrackingWarning",
    "AdaGrad",
    "Adam",
    "group",
    "learner",
    "load",
    "make_step",
    "minibatches",
    "normals",
    "open_tracker",
    "precision",
    "provenance",
    "save",
    "Sgd",
    "split_items",
    "stack_trials",
    "train",
    "training_index",
    "training_steps",
    "uniforms",
    "update",
]
