-- Any value that is new forgets the failures, once.
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["tuning.storageclient.dev/retry"] = os.date("!%Y-%m-%dT%XZ")
return obj
