"""Tests of more than one module: contracts, architecture, documents, files of other tools."""
