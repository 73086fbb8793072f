"""A table with doubtful labels -> a model of it -> which labels are flagged, and why.

inputs -> choice -> verdicts, similar, threshold_path, reasons -> evidence -> summary
-> outputs -> table, parquet
"""

from activehuber.audit.summary import Summary
from activehuber.audit.table import Audit, audit

__all__ = ["Audit", "Summary", "audit"]
