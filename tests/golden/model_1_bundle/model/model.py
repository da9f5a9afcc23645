"""The submitted model, without its weights, which are in weights.safetensors."""

from aggregates.spec import ModelSpec
from monitor.model import ResidualCNN

SPEC = {'classes': 10,
 'channels': 8,
 'stem_stride': 2,
 'blocks': [{'width': 8,
             'residual': True,
             'norm': 'batch',
             'activation': 'relu'},
            {'width': 8,
             'residual': True,
             'norm': 'batch',
             'activation': 'relu'}],
 'norm': 'batch',
 'activation': 'relu'}


def load_model() -> ResidualCNN:
    """Return the model, He-initialised."""
    return ResidualCNN(ModelSpec.from_dict(SPEC), seed=0)
