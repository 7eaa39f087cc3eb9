"""cuDLA: sessions, tasks, tensors and the watchdog."""

from .cuda_calls import CudaCalls
from .host import require_dlas
from .library import CudlaBinding
from .states import DlaMode
from .statuses import CudlaStatus
from .tasks import TASK
from .tensors import TENSOR_DESCRIPTOR, DataCategory, DataFormat, DataType, PixelFormat, PixelMapping, TensorDescriptor

__all__ = [
    "TASK",
    "TENSOR_DESCRIPTOR",
    "CudaCalls",
    "CudlaBinding",
    "CudlaStatus",
    "DataCategory",
    "DataFormat",
    "DataType",
    "DlaMode",
    "PixelFormat",
    "PixelMapping",
    "TensorDescriptor",
    "require_dlas",
]
