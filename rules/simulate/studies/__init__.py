"""A question that no score answers (lemons, foresight, ledger) comes in; numbers go out."""
