// A module of another build, for module_test.
#include "core/module.h"

namespace tutti {

const Module tutti_module{"1-def", nullptr};

}  // namespace tutti
