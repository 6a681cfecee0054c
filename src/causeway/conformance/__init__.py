"""The suite that a vendor's library must pass: `causeway conformance`.

`abi` asks the C table alone, level by level, in a process that has no torch. `operators` runs each
operator that the vendor offers and compares it with the CPU: `harvest` takes real calls from
torch's own samples, `variations` turns each into others, `placement` puts them between guards.
`workers` spreads both over processes, so that a crash is one failure among others; `report` writes
it down. Nothing is imported here: `table` and `abi` also run where torch is not.
"""
