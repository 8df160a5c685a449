// Functions of the program that MPI calls, in terms of the handles of one binary interface: abi.h
// and mpich_abi.h include this file after their handles.
#ifndef TUTTI_BINDINGS_MPI_ABI_FUNCTIONS_H
#define TUTTI_BINDINGS_MPI_ABI_FUNCTIONS_H

// clang-format off

typedef void MPI_User_function(void* in, void* in_out, int* count, MPI_Datatype* type);
typedef void MPI_User_function_c(void* in, void* in_out, MPI_Count* count, MPI_Datatype* type);

typedef int MPI_Comm_copy_attr_function(MPI_Comm old, int key, void* extra, void* in, void* out, int* copied);
typedef int MPI_Type_copy_attr_function(MPI_Datatype old, int key, void* extra, void* in, void* out, int* copied);
typedef int MPI_Win_copy_attr_function(MPI_Win old, int key, void* extra, void* in, void* out, int* copied);
typedef int MPI_Comm_delete_attr_function(MPI_Comm comm, int key, void* value, void* extra);
typedef int MPI_Type_delete_attr_function(MPI_Datatype type, int key, void* value, void* extra);
typedef int MPI_Win_delete_attr_function(MPI_Win win, int key, void* value, void* extra);
typedef MPI_Comm_copy_attr_function MPI_Copy_function;      // deprecated
typedef MPI_Comm_delete_attr_function MPI_Delete_function;  // deprecated

typedef void MPI_Comm_errhandler_function(MPI_Comm* comm, int* code, ...);
typedef void MPI_Win_errhandler_function(MPI_Win* win, int* code, ...);
typedef void MPI_File_errhandler_function(MPI_File* file, int* code, ...);
typedef void MPI_Session_errhandler_function(MPI_Session* session, int* code, ...);
typedef MPI_Comm_errhandler_function MPI_Comm_errhandler_fn;
typedef MPI_Win_errhandler_function MPI_Win_errhandler_fn;
typedef MPI_File_errhandler_function MPI_File_errhandler_fn;
typedef MPI_Session_errhandler_function MPI_Session_errhandler_fn;

typedef int MPI_Grequest_query_function(void* extra, MPI_Status* status);
typedef int MPI_Grequest_free_function(void* extra);
typedef int MPI_Grequest_cancel_function(void* extra, int complete);

typedef int MPI_Datarep_extent_function(MPI_Datatype type, MPI_Aint* extent, void* extra);
typedef int MPI_Datarep_conversion_function(void* user, MPI_Datatype type, int count, void* file, MPI_Offset position, void* extra);
typedef int MPI_Datarep_conversion_function_c(void* user, MPI_Datatype type, MPI_Count count, void* file, MPI_Offset position, void* extra);

typedef void MPI_T_event_cb_function(MPI_T_event_instance event, MPI_T_event_registration registration, MPI_T_cb_safety safety, void* user);
typedef void MPI_T_event_free_cb_function(MPI_T_event_registration registration, MPI_T_cb_safety safety, void* user);
typedef void MPI_T_event_dropped_cb_function(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety, void* user);

// clang-format on

#endif
