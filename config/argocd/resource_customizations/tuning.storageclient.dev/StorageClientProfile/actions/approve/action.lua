-- The hash covers which nodes reboot, for what and how. One that the spec has outgrown since approves nothing.
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["tuning.storageclient.dev/approved-plan"] = obj.status.plan.hash
return obj
