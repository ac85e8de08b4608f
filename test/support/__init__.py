"""Test apparatus that several test folders share."""
