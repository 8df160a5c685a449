// A module for module_test.
#include "core/module.h"

namespace tutti {

static const int answer = 42;
const Module tutti_module{"1-abc", &answer};

}  // namespace tutti
