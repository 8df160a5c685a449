// The procedures that make data types.
#include "bindings/mpi/error.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/type_make.h"

namespace tutti::mpi {
namespace {

/// Gives the program a handle of the type that `make` returns.
template <class Make>
int created(const char* procedure, MPI_Datatype* handle, Make&& make) {
  return guarded(procedure, On(), [&] {
    if (handle == nullptr) fail(MPI_ERR_ARG, "the place for the new type is a null pointer");
    *handle = types().add(make());
  });
}

template <class Int>
std::vector<TypeRef> shared_types(Int count, const MPI_Datatype* handles) {
  std::vector<TypeRef> list;
  for (Int i = 0; i < count; ++i) list.push_back(shared_type(handles[i]));
  return list;
}

}  // namespace

// clang-format off: one line a procedure, and both its widths side by side
#define TUTTI_MPI_MAKES(name, make, parameters, arguments)                 \
  int MPI_##name parameters {                                              \
    return created("MPI_" #name, newtype, [&] { return make arguments; }); \
  }

TUTTI_MPI_MAKES(Type_contiguous, make_contiguous,
                (int count, MPI_Datatype oldtype, MPI_Datatype* newtype),
                (count, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_contiguous_c, make_contiguous,
                (MPI_Count count, MPI_Datatype oldtype, MPI_Datatype* newtype),
                (count, shared_type(oldtype)))

TUTTI_MPI_MAKES(Type_vector, make_vector,
                (int count, int length, int stride, MPI_Datatype oldtype, MPI_Datatype* newtype),
                (count, length, stride, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_vector_c, make_vector,
                (MPI_Count count, MPI_Count length, MPI_Count stride, MPI_Datatype oldtype,
                 MPI_Datatype* newtype),
                (count, length, stride, shared_type(oldtype)))

TUTTI_MPI_MAKES(Type_create_hvector, make_hvector,
                (int count, int length, MPI_Aint stride, MPI_Datatype oldtype,
                 MPI_Datatype* newtype),
                (count, length, stride, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_create_hvector_c, make_hvector,
                (MPI_Count count, MPI_Count length, MPI_Count stride, MPI_Datatype oldtype,
                 MPI_Datatype* newtype),
                (count, length, stride, shared_type(oldtype)))

TUTTI_MPI_MAKES(Type_indexed, make_indexed,
                (int count, const int* lengths, const int* displacements, MPI_Datatype oldtype,
                 MPI_Datatype* newtype),
                (count, lengths, displacements, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_indexed_c, make_indexed,
                (MPI_Count count, const MPI_Count* lengths, const MPI_Count* displacements,
                 MPI_Datatype oldtype, MPI_Datatype* newtype),
                (count, lengths, displacements, shared_type(oldtype)))

TUTTI_MPI_MAKES(Type_create_hindexed, make_hindexed,
                (int count, const int* lengths, const MPI_Aint* displacements, MPI_Datatype oldtype,
                 MPI_Datatype* newtype),
                (count, lengths, displacements, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_create_hindexed_c, make_hindexed,
                (MPI_Count count, const MPI_Count* lengths, const MPI_Count* displacements,
                 MPI_Datatype oldtype, MPI_Datatype* newtype),
                (count, lengths, displacements, shared_type(oldtype)))

TUTTI_MPI_MAKES(Type_create_indexed_block, make_indexed_block,
                (int count, int length, const int* displacements, MPI_Datatype oldtype,
                 MPI_Datatype* newtype),
                (count, length, displacements, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_create_indexed_block_c, make_indexed_block,
                (MPI_Count count, MPI_Count length, const MPI_Count* displacements,
                 MPI_Datatype oldtype, MPI_Datatype* newtype),
                (count, length, displacements, shared_type(oldtype)))

TUTTI_MPI_MAKES(Type_create_hindexed_block, make_hindexed_block,
                (int count, int length, const MPI_Aint* displacements, MPI_Datatype oldtype,
                 MPI_Datatype* newtype),
                (count, length, displacements, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_create_hindexed_block_c, make_hindexed_block,
                (MPI_Count count, MPI_Count length, const MPI_Count* displacements,
                 MPI_Datatype oldtype, MPI_Datatype* newtype),
                (count, length, displacements, shared_type(oldtype)))

TUTTI_MPI_MAKES(Type_create_struct, make_struct,
                (int count, const int* lengths, const MPI_Aint* displacements,
                 const MPI_Datatype* members, MPI_Datatype* newtype),
                (count, lengths, displacements, shared_types(count, members)))
TUTTI_MPI_MAKES(Type_create_struct_c, make_struct,
                (MPI_Count count, const MPI_Count* lengths, const MPI_Count* displacements,
                 const MPI_Datatype* members, MPI_Datatype* newtype),
                (count, lengths, displacements, shared_types(count, members)))

TUTTI_MPI_MAKES(Type_create_subarray, make_subarray,
                (int dimensions, const int* sizes, const int* subsizes, const int* starts,
                 int order, MPI_Datatype oldtype, MPI_Datatype* newtype),
                (dimensions, sizes, subsizes, starts, order, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_create_subarray_c, make_subarray,
                (int dimensions, const MPI_Count* sizes, const MPI_Count* subsizes,
                 const MPI_Count* starts, int order, MPI_Datatype oldtype, MPI_Datatype* newtype),
                (dimensions, sizes, subsizes, starts, order, shared_type(oldtype)))

TUTTI_MPI_MAKES(Type_create_darray, make_darray,
                (int size, int rank, int dimensions, const int* sizes, const int* kinds,
                 const int* blocks, const int* grid, int order, MPI_Datatype oldtype,
                 MPI_Datatype* newtype),
                ({size, rank, dimensions, kinds, blocks, grid, order}, sizes, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_create_darray_c, make_darray,
                (int size, int rank, int dimensions, const MPI_Count* sizes, const int* kinds,
                 const int* blocks, const int* grid, int order, MPI_Datatype oldtype,
                 MPI_Datatype* newtype),
                ({size, rank, dimensions, kinds, blocks, grid, order}, sizes, shared_type(oldtype)))

TUTTI_MPI_MAKES(Type_create_resized, make_resized<int>,
                (MPI_Datatype oldtype, MPI_Aint lower_bound, MPI_Aint extent,
                 MPI_Datatype* newtype),
                (lower_bound, extent, shared_type(oldtype)))
TUTTI_MPI_MAKES(Type_create_resized_c, make_resized<MPI_Count>,
                (MPI_Datatype oldtype, MPI_Count lower_bound, MPI_Count extent,
                 MPI_Datatype* newtype),
                (lower_bound, extent, shared_type(oldtype)))
#undef TUTTI_MPI_MAKES
// clang-format on

int MPI_Type_dup(MPI_Datatype oldtype, MPI_Datatype* newtype) {
  return guarded("MPI_Type_dup", On(), [&] {
    if (newtype == nullptr) fail(MPI_ERR_ARG, "the place for the new type is a null pointer");
    const TypeRef old = shared_type(oldtype);
    const TypeRef copy = Type::duplicate(old);
    const MPI_Datatype handle = types().add(copy);
    try {
      old->attributes().copy_to(copy->attributes(), bits_of(oldtype), bits_of(handle));
    } catch (...) {
      types().remove(handle);
      *newtype = MPI_DATATYPE_NULL;
      throw;
    }
    *newtype = handle;
  });
}

int MPI_Type_free(MPI_Datatype* datatype) {
  return guarded("MPI_Type_free", On(), [&] {
    if (datatype == nullptr) fail(MPI_ERR_ARG, "the place of the type's handle is a null pointer");
    Type& type = type_of(*datatype);
    if (types().is_predefined(*datatype)) {
      fail(MPI_ERR_TYPE, "{} is predefined and cannot be freed", type.name());
    }
    type.attributes().clear(bits_of(*datatype));
    types().remove(*datatype);
    *datatype = MPI_DATATYPE_NULL;
  });
}

int MPI_Type_commit(MPI_Datatype* datatype) {
  return guarded("MPI_Type_commit", On(), [&] {
    if (datatype == nullptr) fail(MPI_ERR_ARG, "the place of the type's handle is a null pointer");
    type_of(*datatype).commit();
  });
}

// --- What MPI-1 called them

int MPI_Type_hvector(int count, int length, MPI_Aint stride, MPI_Datatype oldtype,
                     MPI_Datatype* newtype) {
  return MPI_Type_create_hvector(count, length, stride, oldtype, newtype);
}

int MPI_Type_hindexed(int count, int lengths[], MPI_Aint displacements[], MPI_Datatype oldtype,
                      MPI_Datatype* newtype) {
  return MPI_Type_create_hindexed(count, lengths, displacements, oldtype, newtype);
}

int MPI_Type_struct(int count, int lengths[], MPI_Aint displacements[], MPI_Datatype members[],
                    MPI_Datatype* newtype) {
  return MPI_Type_create_struct(count, lengths, displacements, members, newtype);
}

}  // namespace tutti::mpi
