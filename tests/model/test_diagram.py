"""The page about the architecture tells the states as the table has them."""

from tests.model.diagram import PAGE, drawn, told


def test_the_page_tells_the_table_of_states():
    assert told(PAGE.read_text()) == drawn(), "python -m tests.model.diagram writes it"
