// Handles as integers: MPI_..._toint and _fromint, and the same under the names that Fortran's
// users know, _c2f and _f2c. Statuses for Fortran are the integers of C's.
#include <cstring>
#include <mutex>
#include <vector>

#include "bindings/mpi/communicator.h"
#include "bindings/mpi/errhandler.h"
#include "bindings/mpi/error.h"
#include "bindings/mpi/group.h"
#include "bindings/mpi/info.h"
#include "bindings/mpi/op.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/request.h"
#include "bindings/mpi/type.h"
#include "bindings/mpi/window.h"

namespace tutti::mpi {
namespace {

/// Numbers for handles that are addresses of their own kind: given out when a program asks, and
/// kept.
template <class Handle>
class GivenNumbers {
 public:
  int number(Handle handle) {
    if (!std::is_pointer_v<Handle> || is_predefined(bits_of(handle)))
      return static_cast<int>(predefined_number(handle));
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (given_[i] == handle) return static_cast<int>(kFirst + i);
    }
    given_.push_back(handle);
    return static_cast<int>(kFirst + given_.size() - 1);
  }
  Handle numbered(int number) {
    const auto value = static_cast<std::uint32_t>(number);
    if (!std::is_pointer_v<Handle> || value < kFirst) return predefined_numbered<Handle>(value);
    const std::lock_guard lock(mutex_);
    return value - kFirst < given_.size() ? given_[value - kFirst] : Handle{};
  }

 private:
  static constexpr std::uint32_t kFirst = 4096;

  std::mutex mutex_;
  std::vector<Handle> given_;
};

template <class Handle>
GivenNumbers<Handle>& given() {
  static auto* all = new GivenNumbers<Handle>;
  return *all;
}

void copy_status(const void* from, void* to) {
  static_assert(sizeof(MPI_Status) == sizeof(MPI_F08_status) &&
                sizeof(MPI_Status) == MPI_F_STATUS_SIZE * sizeof(MPI_Fint));
  std::memcpy(to, from, sizeof(MPI_Status));
}

int copy_call(const char* procedure, const void* from, void* to) {
  return guarded(procedure, On(), [&] {
    if (from == nullptr || to == nullptr) fail(MPI_ERR_ARG, "a status is a null pointer");
    copy_status(from, to);
  });
}

}  // namespace

#define TUTTI_MPI_NUMBERS(Kind, table)                                                 \
  int MPI_##Kind##_toint(MPI_HANDLE(Kind) handle) { return table.number(handle); }     \
  MPI_HANDLE(Kind) MPI_##Kind##_fromint(int handle) { return table.numbered(handle); } \
  MPI_Fint MPI_##Kind##_c2f(MPI_HANDLE(Kind) handle) { return table.number(handle); }  \
  MPI_HANDLE(Kind) MPI_##Kind##_f2c(MPI_Fint handle) { return table.numbered(handle); }
#define MPI_HANDLE(Kind) MPI_HANDLE_##Kind
#define MPI_HANDLE_Comm MPI_Comm
#define MPI_HANDLE_Group MPI_Group
#define MPI_HANDLE_Type MPI_Datatype
#define MPI_HANDLE_Op MPI_Op
#define MPI_HANDLE_Request MPI_Request
#define MPI_HANDLE_Message MPI_Message
#define MPI_HANDLE_Info MPI_Info
#define MPI_HANDLE_Errhandler MPI_Errhandler
#define MPI_HANDLE_Session MPI_Session
#define MPI_HANDLE_Win MPI_Win
#define MPI_HANDLE_File MPI_File

TUTTI_MPI_NUMBERS(Comm, comms())
TUTTI_MPI_NUMBERS(Group, groups())
TUTTI_MPI_NUMBERS(Type, types())
TUTTI_MPI_NUMBERS(Op, operators())
TUTTI_MPI_NUMBERS(Request, requests())
TUTTI_MPI_NUMBERS(Info, infos())
TUTTI_MPI_NUMBERS(Errhandler, error_handlers())
TUTTI_MPI_NUMBERS(Win, wins())
TUTTI_MPI_NUMBERS(Message, given<MPI_Message>())
TUTTI_MPI_NUMBERS(Session, given<MPI_Session>())
TUTTI_MPI_NUMBERS(File, given<MPI_File>())

int MPI_Status_c2f(const MPI_Status* from, MPI_Fint* to) {
  return copy_call("MPI_Status_c2f", from, to);
}
int MPI_Status_f2c(const MPI_Fint* from, MPI_Status* to) {
  return copy_call("MPI_Status_f2c", from, to);
}
int MPI_Status_c2f08(const MPI_Status* from, MPI_F08_status* to) {
  return copy_call("MPI_Status_c2f08", from, to);
}
int MPI_Status_f082c(const MPI_F08_status* from, MPI_Status* to) {
  return copy_call("MPI_Status_f082c", from, to);
}
int MPI_Status_f2f08(const MPI_Fint* from, MPI_F08_status* to) {
  return copy_call("MPI_Status_f2f08", from, to);
}
int MPI_Status_f082f(const MPI_F08_status* from, MPI_Fint* to) {
  return copy_call("MPI_Status_f082f", from, to);
}

}  // namespace tutti::mpi
