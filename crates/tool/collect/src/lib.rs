//! The collector: launches the program, drains the rings, orders events, drives the ledger, writes the recording.
