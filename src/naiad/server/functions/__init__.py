"""`naiad serve module:function`: functions on the command line, run in worker processes."""
