// The sum over a group in place, without torch.distributed's Python, its dispatcher and its
// recorder, which together take longer than a small call: for engines that sum in every layer of
// every token. Python calls a function of one tensor; what torch.compile has compiled calls a
// torch op, which it takes as it is.
#include <Python.h>
#include <torch/library.h>

#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backend.h"
#include "python.h"

namespace tutti::pytorch {
namespace {

using BackendPointer = c10::intrusive_ptr<Backend>;

BackendPointer backend_of(const std::string& group) {
  auto backend = ::c10d::resolve_process_group(group)->getBackend(c10::DeviceType::CPU);
  TORCH_CHECK(dynamic_cast<Backend*>(backend.get()) != nullptr,
              "all_reduce_: the backend of group ", group, " for CPU tensors is ",
              backend->getBackendName(), ", not tutti");
  return c10::static_intrusive_pointer_cast<Backend>(backend);
}

void all_reduce_op(const at::Tensor& tensor, const std::string& group) {
  const BackendPointer backend = backend_of(group);
  const WithoutPython without;
  backend->sum(tensor);
}

/// What a function of Python has in mind. Its classes live as long as PyTorch.
struct Bound {
  BackendPointer backend;
  PyObject *tensor, *parameter;
  std::size_t offset;  // of the at::Tensor in an object of these classes
};

constexpr const char* kBound = "tutti.all_reduce_";

void forget(PyObject* capsule) {
  delete static_cast<Bound*>(PyCapsule_GetPointer(capsule, kBound));
}

PyObject* all_reduce(PyObject* capsule, PyObject* x) {
  const auto* const bound = static_cast<Bound*>(PyCapsule_GetPointer(capsule, kBound));
  // Subclasses may mean something else by their memory, as DTensor does.
  PyObject* const type = PyObject_Type(x);
  Py_DecRef(type);  // x has it
  if (type != bound->tensor && type != bound->parameter) {
    PyErr_SetString(PyExc_TypeError,
                    "all_reduce_ takes a torch.Tensor or a Parameter, and nothing that is derived "
                    "from them: torch.distributed.all_reduce takes others");
    return nullptr;
  }
  try {
    const WithoutPython without;
    const auto* const memory = reinterpret_cast<const char*>(x) + bound->offset;
    bound->backend->sum(*reinterpret_cast<const at::Tensor*>(memory));
  } catch (...) {
    raise_in_python();
    return nullptr;
  }
  Py_IncRef(x);
  return x;
}

PyMethodDef definition = {"all_reduce_", all_reduce, METH_O,
                          "Sums a tensor in place over the ranks of the group, and returns it."};

}  // namespace
}  // namespace tutti::pytorch

TORCH_LIBRARY(tutti, m) {
  m.def("all_reduce_(Tensor(a!) tensor, str group) -> ()", {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(tutti, CPU, m) { m.impl("all_reduce_", tutti::pytorch::all_reduce_op); }
TORCH_LIBRARY_IMPL(tutti, Meta, m) {
  m.impl("all_reduce_", [](const at::Tensor&, const std::string&) {});
}

/// The function of a registered process group, which lives as long as the function; a new
/// reference. `tensor` and `parameter` are PyTorch's classes, whose objects have an at::Tensor at
/// `offset`. What fails is raised in Python; the caller holds Python's lock.
TUTTI_C10D_EXPORT PyObject* tutti_c10d_all_reduce(const char* group, PyObject* tensor,
                                                  PyObject* parameter, std::size_t offset) {
  using namespace tutti::pytorch;
  try {
    auto bound = std::make_unique<Bound>(Bound{backend_of(group), tensor, parameter, offset});
    PyObject* const capsule = PyCapsule_New(bound.get(), kBound, forget);
    if (capsule == nullptr) return nullptr;
    static_cast<void>(bound.release());
    PyObject* const function = PyCFunction_NewEx(&definition, capsule, nullptr);
    Py_DecRef(capsule);
    return function;
  } catch (...) {
    raise_in_python();
    return nullptr;
  }
}
