"""One file per public trace format: raw file -> (Trace, AdmissionReport). `catalogue.py` names them."""
