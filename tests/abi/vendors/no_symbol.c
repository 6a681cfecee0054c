/* Refused: a library, but no vendor's. */
int causeway_test_nothing(void);
int causeway_test_nothing(void) { return 0; }
