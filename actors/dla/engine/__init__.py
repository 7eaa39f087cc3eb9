"""cuDLA: sessions, tasks, tensors and the watchdog."""

from .cuda_calls import CudaCalls
from .host import require_dlas
from .statuses import CudlaStatus
from .tasks import TASK
from .tensors import TENSOR_DESCRIPTOR, DataCategory, DataFormat, DataType, PixelFormat, PixelMapping, TensorDescriptor

__all__ = [
    "TASK",
    "TENSOR_DESCRIPTOR",
    "CudaCalls",
    "CudlaStatus",
    "DataCategory",
    "DataFormat",
    "DataType",
    "PixelFormat",
    "PixelMapping",
    "TensorDescriptor",
    "require_dlas",
]
