// A shared object that is no module, for module_test.
extern "C" const int tutti_no_module;
const int tutti_no_module = 1;
