"""A table with doubtful labels -> a model of it -> which labels are flagged, and why.

inputs -> choice -> verdicts, similar, threshold_path -> summary, outputs
-> table -> parquet
"""

from activehuber.audit.table import Audit, audit
from activehuber.report.page import Summary

__all__ = ["Audit", "Summary", "audit"]
