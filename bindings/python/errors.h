// Tutti's errors as Python's exceptions, and Python's Ctrl-C in Tutti's waits.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "core/background.h"

namespace tutti::python {

/// tutti::Error becomes the exception class of its code (errors.py).
void translate_errors(nanobind::module_& module);

/// Runs without the GIL, and lets Ctrl-C end waits on the main thread, where Python's signal
/// handlers run.
class Waiting {
 public:
  Waiting();

 private:
  nanobind::gil_scoped_release release_;
  std::optional<Interruptible> interruptible_;
};

}  // namespace tutti::python
